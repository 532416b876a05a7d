"""A worker that stalls for longer than the heartbeat timeout of an activity that waits in it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from activity_operations import Handle, tokens_of, until_line
from stage import Kind, Stage, until


@contextlib.contextmanager
def worker_process(stage: Stage) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker with one permit, in a process of its own that has to end well."""
    url = stage.settings.redis_url
    assert url is not None
    environment = {
        **os.environ,
        "APPLICATION_NAME": stage.settings.application_name,
        "REDIS_URL": url.get_secret_value(),
        "LOCK_RETRY_INTERVAL": "0.5",
    }
    script = Path(__file__).with_name("stalling_worker.py")
    command = [sys.executable, str(script), stage.temporal.address, stage.task_queue]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)  # noqa: S603 - ours
    try:
        yield process
        process.communicate(timeout=20)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


@contextlib.asynccontextmanager
async def stopped(process: "subprocess.Popen[bytes]") -> AsyncIterator[None]:
    """While entered, the process does nothing."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("name", ["async", "thread"])
@pytest.mark.parametrize("at_once", [True, False], ids=["lock is free", "lock is held"])
async def test_stalled_worker(stage: Stage, kinds: dict[str, Kind], name: str, at_once: bool) -> None:
    """The next attempt goes on elsewhere, in its place; the stalled one takes neither lock nor place."""
    kind = kinds[name]
    async with stage.worker(), stage.somebody_else() as guarding:
        with worker_process(stage) as stalling:
            handle = await stage.start(
                kind, stage.play(name="first-", waits=True, heartbeats=True), heartbeat=2
            )
            (before,) = (await stage.until_waiting(1)).waiters
            assert before.party.worker.startswith(f"{stalling.pid}@")
            async with stopped(stalling), stage.worker(kind=kind, workflows=[]):
                second = await stage.start(kind, stage.play(name="second-"), heartbeat=2)
                await until_next_attempt(stage, handle)
                line = await until_line(stage, (handle, True), (second, True))
                assert line[0].waiter == before.waiter
                if at_once:
                    await stage.store.release(guarding)
                    stage.cue("first-go")
                    tokens = await tokens_of(handle, second)
                stalling.send_signal(signal.SIGCONT)
                await stage.saw("first-left1")
                if not at_once:
                    again = await until_line(stage, (handle, True), (second, True))
                    assert [waiter.waiter for waiter in again] == [waiter.waiter for waiter in line]
                    await stage.store.release(guarding)
                    stage.cue("first-go")
                    tokens = await tokens_of(handle, second)
    assert tokens == sorted(tokens)
    began = [note.name for note in stage.scene.iterdir() if note.name.startswith("first-began")]
    assert began == [f"first-began{line[0].party.attempt}"]


async def until_next_attempt(stage: Stage, handle: Handle) -> None:
    """Wait until an attempt after the first one is in line."""

    async def there() -> bool:
        return any(
            waiter.present and waiter.party.workflow == handle.id and waiter.party.attempt > 1
            for waiter in (await stage.state()).waiters
        )

    await until(there, "the next attempt")
