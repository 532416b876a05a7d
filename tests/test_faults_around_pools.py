"""The fault matrix around the lock: workers with few permits or few threads, by plugin and by interceptor.

A lock is held only while its body runs: not in a queue before a pool, and not beyond what the user allows.
"""

import asyncio
import contextlib
import threading
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import history
import pytest
from activities_under_test import CallActivity
from figures import measured
from history import Expectations
from process_scene import SLACK
from stage import Stage, until
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from lock_interceptor import LockInterceptor, LockPlugin, needs_lock

MEANS = ("plugin", "interceptor")
HEARTBEAT = 1.0
FILLED = 3 * HEARTBEAT
"""Seconds for which a pool has no thread to spare: an attempt without heartbeats is given up meanwhile."""


@dataclass
class Crew:
    """What runs in one worker, in threads of this process."""

    running: int = 0
    most: int = 0
    began: Counter[str] = field(default_factory=Counter)
    may_end: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def body(self, what: str) -> Iterator[None]:
        """One body, counted."""
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.began[what] += 1
        try:
            yield
        finally:
            with self.lock:
                self.running -= 1

    @property
    def activities(self) -> list[Any]:
        """Locked ones that end at once, and an unlocked one that ends when it may."""

        @activity.defn(name="narrow")
        @needs_lock(lock_name="lock")
        def narrow() -> str:
            with self.body("narrow"):
                return "done"

        @activity.defn(name="keyed")
        @needs_lock(lock_name="keyed", key=lambda key: key)
        def keyed(key: str) -> str:
            del key
            with self.body("keyed"):
                self.may_end.wait(30)
            return "done"

        @activity.defn(name="long")
        def long() -> str:
            with self.body("long"):
                self.may_end.wait(30)
            return "done"

        return [narrow, keyed, long]


@contextlib.asynccontextmanager
async def serving(
    stage: Stage, means: str, *, permits: int, threads: int
) -> AsyncIterator[tuple[Crew, list[str]]]:
    """A worker, and what was warned of when it was made."""
    crew, interceptor = Crew(), LockInterceptor(stage.settings)
    plugin = means == "plugin"
    client = await Client.connect(
        stage.temporal.address, plugins=[LockPlugin(stage.settings)] if plugin else []
    )
    with ThreadPoolExecutor(threads) as pool:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            worker = Worker(
                client,
                task_queue=stage.task_queue,
                activities=crew.activities,
                workflows=[CallActivity],
                activity_executor=pool,
                interceptors=[] if plugin else [interceptor],
                workflow_runner=UnsandboxedWorkflowRunner(),
                max_concurrent_activities=permits,
                max_heartbeat_throttle_interval=timedelta(milliseconds=100),
                default_heartbeat_throttle_interval=timedelta(milliseconds=100),
                graceful_shutdown_timeout=timedelta(seconds=5),
            )
        try:
            async with worker:
                try:
                    yield crew, [str(warning.message) for warning in warned]
                finally:
                    crew.may_end.set()
        finally:
            await interceptor.close()


@contextlib.contextmanager
def watched(stage: Stage, directory: Path, row: str) -> Iterator[None]:
    """The history of a row is judged at its end."""
    with history.recording(directory / "history", stage.redis) as run:
        with run.fault(row):
            yield
        report = run.check(Expectations(poll=0.6, slack=SLACK, tidy=False))
    measured(f"{row}: grants {report.counts['grants']}, violations {len(report.violations)}")


async def call(stage: Stage, name: str, *args: Any) -> "asyncio.Future[Any]":
    """Start an activity whose heartbeats are missed soon."""
    handle = await stage.start(name, *args, heartbeat=HEARTBEAT if name == "narrow" else None)
    return asyncio.ensure_future(handle.result())


async def comes(condition: Any, seconds: float) -> bool:
    """Whether it comes true within this time."""
    with contextlib.suppress(TimeoutError):
        return bool(await until(condition, "what may not come", seconds))
    return False


@pytest.mark.parametrize("means", MEANS)
async def test_the_warning_is_kept(means: str, stage: Stage) -> None:
    """A pool smaller than `max_concurrent_activities` is warned of as without this package."""
    async with serving(stage, means, permits=5, threads=2) as (_, warned):
        assert any("max_workers" in each for each in warned), f"{means}: the SDK's warning is gone: {warned}"


@pytest.mark.parametrize("means", MEANS)
async def test_bodies_never_exceed(means: str, stage: Stage, tmp_path: Path) -> None:
    """However many waiters get their locks at once, no more bodies run than the user allows."""
    row, permits = f"granted all at once, {means}", 2
    keys = [str(number) for number in range(4)]
    with watched(stage, tmp_path, row):
        async with serving(stage, means, permits=permits, threads=10) as (crew, _):
            async with contextlib.AsyncExitStack() as others:
                for key in keys:
                    await others.enter_async_context(stage.somebody_else("keyed", key))
                locked = [await call(stage, "keyed", key) for key in keys]

                async def somebody_waits() -> bool:
                    return any([(await stage.state("keyed", key)).waiting for key in keys])

                await until(somebody_waits, "waiters")
                unlocked = [await call(stage, "long") for _ in range(3)]
                await until(lambda: crew.began["long"], "unlocked activities")
            exceeded = await comes(lambda: crew.most > permits, 1.5)
            crew.may_end.set()
            outcomes = await asyncio.gather(*locked, *unlocked)
        assert not exceeded, f"{row}: {crew.most} bodies ran at once, {permits} may"
        assert crew.most <= permits, f"{row}: {crew.most} bodies ran at once, {permits} may"
        assert outcomes == ["done"] * 7


@pytest.mark.parametrize("threads", [2, 4], ids=["smaller", "as large"])
@pytest.mark.parametrize("means", MEANS)
async def test_another_worker_with_room_goes_first(
    means: str, threads: int, stage: Stage, tmp_path: Path
) -> None:
    """A waiter whose worker has no thread for its body does not keep the lock from one whose worker has."""
    row, permits = f"no thread to spare, {threads} of {4}, {means}", 4
    elsewhere = replace(stage, task_queue=f"other-{stage.task_queue}")
    with watched(stage, tmp_path, row):
        async with (
            serving(stage, means, permits=permits, threads=threads) as (full, _),
            serving(elsewhere, "interceptor", permits=permits, threads=permits) as (other, _),
        ):
            async with stage.somebody_else():
                first = await call(stage, "narrow")
                await stage.until_waiting(1)
                second = await call(elsewhere, "narrow")
                await stage.until_waiting(2)
                filling = [await call(stage, "long") for _ in range(threads)]
                beside = threads if means == "plugin" else min(threads, permits - 1)
                await until(lambda: full.began["long"] == beside, "all threads taken")
            began = await comes(lambda: full.began["narrow"] or other.began["narrow"], 2 * FILLED)
            held = len((await stage.state()).holders)
            full.may_end.set()
            assert await asyncio.gather(first, second, *filling) == ["done"] * (2 + threads)
        assert began, f"{row}: {held} held the lock for {2 * FILLED} s, and no body began"
        assert full.began["narrow"] == other.began["narrow"] == 1, f"{row}: a body ran twice"


@pytest.mark.parametrize("means", MEANS)
async def test_heartbeats_go_on_before_a_pool(means: str, stage: Stage, tmp_path: Path) -> None:
    """An attempt that has to wait for a thread is not given up, and its body runs once."""
    row = f"the pool is full when the lock is free, {means}"
    with watched(stage, tmp_path, row):
        async with serving(stage, means, permits=4, threads=2) as (crew, _):
            filling = [await call(stage, "long") for _ in range(2)]
            await until(lambda: crew.began["long"] == 2, "all threads taken")
            handle = await stage.start("narrow", heartbeat=HEARTBEAT)

            async def given_up() -> bool:
                pending = await stage.pending(handle)
                return pending is not None and "heartbeat" in pending.last_failure.message.lower()

            missed = await comes(given_up, FILLED)
            crew.may_end.set()
            assert await handle.result() == "done"
            assert await asyncio.gather(*filling) == ["done"] * 2
        assert not missed, f"{row}: Temporal missed the heartbeats of an attempt whose body had not begun"
        assert crew.began["narrow"] == 1, f"{row}: the body ran {crew.began['narrow']} times"
