"""An executor with fewer threads or processes than the worker has permits: no lock waits in its queue."""

import asyncio
import contextlib
import multiprocessing
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from placed_bodies import SYNC, a_worker, begun, call, plain, until_begun
from stage import Kind, Stage, until
from temporalio.client import Client
from temporalio.worker import Worker

from lock_interceptor import LockInterceptor, LockPlugin

pytestmark = pytest.mark.filterwarnings("ignore:Worker max_concurrent_activities")
WAYS = pytest.mark.parametrize("way", ["plugin", "interceptor"])
HEARTBEAT = 1.0


@contextlib.contextmanager
def small_pool(kinds: dict[str, Kind], of: str, size: int = 1) -> Iterator[Kind]:
    """An executor with so many threads or processes."""
    spawning = multiprocessing.get_context("spawn")
    with ThreadPoolExecutor(size) if of == "thread" else ProcessPoolExecutor(size, spawning) as pool:
        yield Kind(of, kinds[of].function, pool, kinds[of].manager)


@WAYS
@pytest.mark.parametrize("of", ["thread", "process"])
async def test_no_lock_is_held_before_its_body_can_begin(
    stage: Stage, kinds: dict[str, Kind], way: str, of: str
) -> None:
    """While its pool is busy a waiter holds no lock, heartbeats, and runs once when there is room."""
    narrow, wide = stage.task_queue, f"wide-{stage.task_queue}"
    with small_pool(kinds, of) as kind:
        async with (
            a_worker(stage, way, narrow, kind=kind, max_concurrent_activities=8),
            a_worker(stage, way, wide, max_concurrent_activities=8),
        ):
            async with stage.somebody_else():
                handles = [await call(stage, narrow, "locked_sync", "first", heartbeat=HEARTBEAT)]
                await stage.until_waiting(1)
                handles += [await call(stage, wide, "locked", "second", "end second")]
                await stage.until_waiting(2)
                handles += [await call(stage, narrow, "plain_sync", "plain", "end")]
                await until_begun(stage, "plain")
            # the lock is free: it goes to the worker with room
            await until_begun(stage, "second")
            stage.cue("end second")
            await handles[1].result()
            # and stays free, for longer than a heartbeat may be missing
            until_then = time.monotonic() + 2 * HEARTBEAT
            while time.monotonic() < until_then:
                assert not (await stage.state()).holders
                await asyncio.sleep(0.02)
            stage.cue("end")
            attempts = await asyncio.wait_for(asyncio.gather(*(each.result() for each in handles)), 30)
    assert attempts == [1, 1, 1]
    assert begun(stage) == ["plain", "second", "first"]


@WAYS
async def test_a_free_lock_is_not_taken_without_a_thread(
    stage: Stage, kinds: dict[str, Kind], way: str
) -> None:
    """An activity whose lock is free from the start is not granted it before a thread is."""
    queue = stage.task_queue
    with small_pool(kinds, "thread") as kind:
        async with a_worker(stage, way, queue, kind=kind, max_concurrent_activities=8):
            handles = [await call(stage, queue, "plain_sync", "plain", "end")]
            await until_begun(stage, "plain")
            handles += [await call(stage, queue, "locked_sync", f"waiter{number}") for number in range(3)]
            state = await stage.until_waiting(3, present=False)
            assert not state.holders
            stage.cue("end")
            await asyncio.wait_for(asyncio.gather(*(each.result() for each in handles)), 30)


async def test_workers_that_share_a_pool(stage: Stage, kinds: dict[str, Kind]) -> None:
    """A thread that runs a body of one worker is busy for the other one, too, whatever each was given."""
    one, other = stage.task_queue, f"other-{stage.task_queue}"
    with small_pool(kinds, "thread") as kind:
        async with (
            a_worker(stage, "plugin", one, kind=kind, max_concurrent_activities=4),
            a_worker(stage, "interceptor", other, kind=kind, max_concurrent_activities=4),
        ):
            handles = [await call(stage, one, "plain_sync", "plain", "end")]
            await until_begun(stage, "plain")
            handles += [await call(stage, other, "locked_sync", "waiter")]
            assert not (await stage.until_waiting(1, present=False)).holders
            stage.cue("end")
            await asyncio.wait_for(asyncio.gather(*(each.result() for each in handles)), 30)


async def test_given_twice_counts_once(stage: Stage, kinds: dict[str, Kind]) -> None:
    """With an interceptor in the client and another one in the worker a body needs one thread."""
    client = await Client.connect(
        stage.temporal.address, interceptors=[outer := LockInterceptor(stage.settings)]
    )
    inner = LockInterceptor(stage.settings)
    with small_pool(kinds, "thread") as kind:
        async with Worker(
            client,
            task_queue=stage.task_queue,
            activities=SYNC,
            activity_executor=kind.executor,
            interceptors=[inner],
            max_concurrent_activities=8,
        ):
            handles = [
                await call(stage, stage.task_queue, what, what) for what in ("plain_sync", "locked_sync")
            ]
            await asyncio.wait_for(asyncio.gather(*(each.result() for each in handles)), 30)
    await outer.close()
    await inner.close()


async def test_a_full_pool_leaves_others_alone(stage: Stage, kinds: dict[str, Kind]) -> None:
    """Async activities, with locks and without, need no thread."""
    queue = stage.task_queue
    with small_pool(kinds, "thread") as kind:
        async with a_worker(stage, "plugin", queue, kind=kind, max_concurrent_activities=8):
            blocking = await call(stage, queue, "plain_sync", "blocking", "end")
            await until_begun(stage, "blocking")
            handles = [await call(stage, queue, what, what) for what in ("plain", "locked", "locked_twice")]
            await asyncio.wait_for(asyncio.gather(*(each.result() for each in handles)), 30)
            stage.cue("end")
            await blocking.result()


@pytest.mark.parametrize("way", ["bare", "interceptor", "plugin"])
@pytest.mark.parametrize(("permits", "warned"), [(50, True), (2, False), (None, False)])
async def test_the_sdk_warns_of_a_small_pool(
    stage: Stage, way: str, permits: int | None, *, warned: bool
) -> None:
    """Fewer threads than ``max_concurrent_activities`` are warned of as they are without locks."""
    client = await Client.connect(
        stage.temporal.address, plugins=[LockPlugin(stage.settings)] if way == "plugin" else []
    )
    with ThreadPoolExecutor(2) as threads, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Worker(
            client,
            task_queue=stage.task_queue,
            activities=[plain, *SYNC],
            activity_executor=threads,
            interceptors=[LockInterceptor(stage.settings)] if way == "interceptor" else [],
            max_concurrent_activities=permits,
        )
    found = [str(each.message) for each in seen if issubclass(each.category, UserWarning)]
    text = "Worker max_concurrent_activities is 50 but activity_executor's max_workers is only 2"
    assert found == ([text] if warned else [])


async def test_a_cancelled_activity_goes_as_it_does_without_locks(
    stage: Stage, kinds: dict[str, Kind]
) -> None:
    """A sync activity that is cancelled before it has a thread runs when there is one, as without locks."""
    queue = stage.task_queue
    with small_pool(kinds, "thread") as kind:
        async with a_worker(stage, "interceptor", queue, kind=kind, max_concurrent_activities=4):
            blocking = await call(stage, queue, "plain_sync", "blocking", "end")
            await until_begun(stage, "blocking")
            second = await call(stage, queue, "plain_sync", "second")

            async def it_has_begun() -> bool:
                return (await second.describe()).last_started_time is not None

            await until(it_has_begun, "its first attempt")
            await second.cancel()
            stage.cue("end")
            await blocking.result()
            assert await asyncio.wait_for(second.result(), 30) == 1
