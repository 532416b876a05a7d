"""What `LockPlugin` adds to the interceptor: the sandbox, a check at the start, connections that end."""

import asyncio
import gc
import importlib.machinery
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from activities_under_test import CallActivity
from pydantic import SecretStr
from servers import command
from stage import Stage, until
from structlog.testing import capture_logs
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from lock_interceptor import LockConfigurationError, LockInterceptor, LockPlugin, LockSettings, needs_lock
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import free_ports

SINGLE_FILE = '''
"""Workflow, activity and worker in one file, as programs begin."""

from datetime import timedelta

from temporalio import activity, workflow

from lock_interceptor import LockInterceptor, LockPlugin, LockSettings, RedisLockStore
from lock_interceptor import current_lease, needs_lock


@activity.defn
@needs_lock(lock_name="single", max_locks=3)
async def work() -> str:
    return current_lease().label


@workflow.defn
class Single:
    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_activity(work, schedule_to_close_timeout=timedelta(minutes=1))
'''

HEAVY = {"redis", "hiredis", "structlog", "pydantic", "pydantic_settings"}


@activity.defn
@needs_lock(lock_name="lock")
async def locked() -> str:
    return "done"


@pytest.fixture
def single_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module that `SINGLE_FILE` makes."""
    (tmp_path / "single_file.py").write_text(SINGLE_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("single_file")
    del sys.modules["single_file"]


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The modules that sandboxes execute from now on, each for a copy of its own."""
    names: list[str] = []
    execute = importlib.machinery.SourceFileLoader.exec_module

    def noting(loader: importlib.machinery.SourceFileLoader, module: ModuleType) -> None:
        if workflow.unsafe.in_sandbox():
            names.append(module.__name__)
        execute(loader, module)

    monkeypatch.setattr(importlib.machinery.SourceFileLoader, "exec_module", noting)
    # a connection that is collected while a sandbox imports makes redis-py import in its finalizer
    gc.collect()
    gc.disable()
    yield names
    gc.enable()


def packages(names: list[str]) -> set[str]:
    """The top-level packages of modules."""
    return {name.split(".")[0] for name in names}


async def test_sandbox_imports_nothing_again(
    stage: Stage, single_file: ModuleType, executed: list[str]
) -> None:
    """With the plugin the sandbox takes this package and what it needs as they are."""
    plugin = LockPlugin(stage.settings)
    client = await Client.connect(stage.temporal.address, plugins=[plugin])
    async with Worker(
        client, task_queue=stage.task_queue, workflows=[single_file.Single], activities=[single_file.work]
    ):
        run = client.execute_workflow(
            single_file.Single.run, id=stage.task_queue, task_queue=stage.task_queue
        )
        assert await run == "single"
    # once when the worker validates the workflow, and once for the workflow
    assert executed.count("single_file") == 2
    assert not packages(executed) & {"lock_interceptor", *HEAVY}


async def test_sandbox_without_plugin(stage: Stage, single_file: ModuleType, executed: list[str]) -> None:
    """With a plain interceptor the sandbox imports again what is light, and never redis or structlog."""
    interceptor = LockInterceptor(stage.settings)
    async with Worker(
        stage.client,
        task_queue=stage.task_queue,
        workflows=[single_file.Single],
        activities=[single_file.work],
        interceptors=[interceptor],
    ):
        run = stage.client.execute_workflow(
            single_file.Single.run, id=stage.task_queue, task_queue=stage.task_queue
        )
        assert await run == "single"
    await interceptor.close()
    assert "lock_interceptor" in executed
    assert not packages(executed) & HEAVY


def worker(client: Client, task_queue: str, **options: Any) -> Worker:
    """A worker with no interceptor of its own."""
    return Worker(client, task_queue=task_queue, activities=[locked], **options)


async def run_locked(stage: Stage, task_queue: str) -> str:
    """Run the activity without a workflow."""
    result: str = await stage.client.execute_activity(
        locked, id=task_queue, task_queue=task_queue, schedule_to_close_timeout=60 * stage.settings.lease
    )
    return result


def connections(server: RedisServer) -> int:
    """How many clients a server has, besides the one that asks."""
    return len(command(server, "CLIENT", "LIST").splitlines()) - 1


def keepers() -> int:
    """How many threads renew leases."""
    return [thread.name for thread in threading.enumerate()].count("lock_interceptor.keeper")


async def test_connections_end_with_the_last_worker(stage: Stage) -> None:
    """As long as one worker of the plugin runs its connections are there, and then they are gone."""
    before = keepers()
    with RedisServer() as server:
        settings = stage.with_settings(redis_url=SecretStr(server.url)).settings
        client = await Client.connect(stage.temporal.address, plugins=[LockPlugin(settings)])
        for time in ("first", "second"):  # they come back with the next worker
            one, other = (f"{time}-{which}-{stage.task_queue}" for which in ("one", "other"))
            async with worker(client, one):
                async with worker(client, other):
                    await asyncio.gather(run_locked(stage, one), run_locked(stage, other))
                assert connections(server) > 0
                assert keepers() == before + 1
            await until(lambda: connections(server) == 0, "closed connections")
            assert keepers() == before


async def test_wrong_password_stops_the_worker(stage: Stage) -> None:
    """A worker that would only produce failures does not start, whichever way it is run."""
    with RedisServer("--requirepass", "secret") as server:
        changes = {"redis_url": SecretStr(server.url), "redis_password": SecretStr("wrong")}
        plugin = LockPlugin(stage.with_settings(**changes).settings)
        client = await Client.connect(stage.temporal.address, plugins=[plugin])
        async with asyncio.timeout(10):
            with pytest.raises(LockConfigurationError, match="REDIS_PASSWORD"):
                await worker(client, stage.task_queue).run()
            with pytest.raises(LockConfigurationError, match="REDIS_PASSWORD"):
                async with worker(client, f"again-{stage.task_queue}"):
                    await asyncio.Event().wait()
    assert keepers() == 0


async def test_plugin_serves_again_after_a_refusal(stage: Stage) -> None:
    """Once the password fits, the next worker of a plugin that has refused one runs locked activities."""
    with RedisServer("--requirepass", "secret") as server:
        changes = {"redis_url": SecretStr(server.url), "redis_password": SecretStr("wrong")}
        plugin = LockPlugin(stage.with_settings(**changes).settings)
        client = await Client.connect(stage.temporal.address, plugins=[plugin])
        with pytest.raises(LockConfigurationError, match="REDIS_PASSWORD"):
            await worker(client, f"refused-{stage.task_queue}").run()
        command(server, "CONFIG", "SET", "requirepass", "wrong", password="secret")  # noqa: S106 - of a test
        async with worker(client, stage.task_queue), asyncio.timeout(10):
            await run_locked(stage, stage.task_queue)


async def test_redis_may_be_down_at_the_start(stage: Stage) -> None:
    """The worker starts, says so, and its locked activities run once Redis is there."""
    (port,) = free_ports(1)
    server = RedisServer(port=port)
    settings = stage.with_settings(redis_url=SecretStr(server.url)).settings
    client = await Client.connect(stage.temporal.address, plugins=[LockPlugin(settings)])
    with capture_logs() as logs:
        async with worker(client, stage.task_queue):
            waiting = asyncio.ensure_future(run_locked(stage, stage.task_queue))
            await until(lambda: len(logs) > 1, "two warnings")
            # by the worker at its start, and by the activity that waits
            assert {entry["event"] for entry in logs} == {"lock.store_unavailable"}
            assert [bool(entry.get("activity")) for entry in logs[:2]] == [False, True]
            with server:
                assert await waiting == "done"


async def test_replayer_needs_no_redis(stage: Stage) -> None:
    """Replaying takes no locks, so it does not matter whether Redis is there."""
    async with stage.worker(locked):
        handle = await stage.start("locked")
        await handle.result()
    history = await handle.fetch_history()
    (port,) = free_ports(1)
    settings = LockSettings(redis_host="127.0.0.1", redis_port=port)
    with capture_logs() as logs:
        await Replayer(workflows=[CallActivity], plugins=[LockPlugin(settings)]).replay_workflow(history)
    assert not logs


def test_other_runners_are_left_alone(stage: Stage) -> None:
    """A workflow runner that is no sandbox stays; a sandbox keeps its other restrictions."""
    plugin = LockPlugin(stage.settings)
    unsandboxed, sandboxed = UnsandboxedWorkflowRunner(), SandboxedWorkflowRunner()
    assert plugin.configure_replayer({"workflow_runner": unsandboxed})["workflow_runner"] is unsandboxed
    runner = plugin.configure_replayer({"workflow_runner": sandboxed})["workflow_runner"]
    assert isinstance(runner, SandboxedWorkflowRunner)
    assert runner.restrictions.passthrough_modules > sandboxed.restrictions.passthrough_modules
    assert runner.restrictions.invalid_modules == sandboxed.restrictions.invalid_modules
