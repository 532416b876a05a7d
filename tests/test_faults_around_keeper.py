"""The fault matrix around the lock: the thread that renews, and `close` while something is held.

The thread fails to start, dies, or hangs. A body then either keeps its lock or is told in time, and when the
fault is over everything is as before.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from process_bodies import KINDS
from process_faults import ThreadOf, Unexpected, no_new_thread, thread_dies, thread_hangs, thread_raises
from process_scene import LEASE, assert_told, either, in_time, scene
from stage import Kind

from lock_interceptor.dev import RedisServer

LONG, RENEWED = 2 * LEASE, 1.5 * LEASE
ALWAYS = 1_000_000
# a thread that ends by an error is what these rows are about, and it closes nothing
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

Fault = Callable[[ThreadOf], contextlib.AbstractContextManager[object]]
FAULTS: dict[str, Fault] = {
    "starts at the 2nd try": lambda _: no_new_thread(1),
    "never starts": lambda _: no_new_thread(ALWAYS),
    "dies": thread_dies,
    "raises SystemExit": lambda store: thread_raises(store, SystemExit),
    "raises its own": lambda store: thread_raises(store, Unexpected),
    "hangs": thread_hangs,
}
TOLD = {"done", "LockLost", "LockStoreUnavailable", "RuntimeError: can't start new thread"}
"""How an attempt may end whose lease cannot be renewed; what its body heard is judged apart."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
async def test_the_thread_that_renews(
    fault: str, kind: str, matrix_server: RedisServer, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    """Whatever happens to it, no body works on after its lease, others go on, and later ones are renewed."""
    row, stores = f"keeper {fault}, {kind}", list[ThreadOf]()

    def wrap(store: object) -> ThreadOf:
        stores.append(ThreadOf(store))  # type: ignore[arg-type]
        return stores[-1]

    with scene(matrix_server, tmp_path, kinds["process"].executor, row) as place:
        async with place.worker(wrap) as worker, place.worker() as other:
            with place.run.fault(row), FAULTS[fault](stores[0]):
                body = asyncio.ensure_future(worker.do(kind, LONG, "first"))
                await either(body, place.saw("first", "began"))
                behind = [each.do("async", 0.05, f"behind{n}") for n, each in enumerate((worker, other))]
                outcomes = await in_time(asyncio.gather(body, *behind), f"{row}: its attempts end")
                assert_told(place.run, row)
                assert set(outcomes) <= TOLD, f"{row}: attempts ended as {outcomes}"
            await place.until_free(LEASE + 5)
            again = await in_time(worker.do(kind, RENEWED, "again"), f"{row}: the next body ends")
            assert again == "done", f"{row}: when it was over, the next body ended as {again}"


@pytest.mark.parametrize("kind", KINDS)
async def test_close_while_held(
    kind: str, matrix_server: RedisServer, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    """Who closes a shared interceptor takes nothing from the bodies that still run under it."""
    row = f"close while held, {kind}"
    with scene(matrix_server, tmp_path, kinds["process"].executor, row) as place:
        async with place.worker() as worker, place.worker() as other:
            with place.run.fault(row):
                body = asyncio.ensure_future(worker.do(kind, LONG, "first"))
                await place.saw("first", "began")
                await in_time(worker.interceptor.close(), f"{row}: close returns")
                follower = asyncio.ensure_future(other.do("async", 0.05, "next"))
                assert await body == "done", f"{row}: its lease was not renewed any more"
                assert await follower == "done"
            assert await worker.do(kind, RENEWED, "again") == "done", f"{row}: the next body lost its lease"


async def test_close_while_somebody_waits(
    matrix_server: RedisServer, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    """Who waits under a shared interceptor when it is closed gets the lock all the same."""
    row = "close while somebody waits"
    with scene(matrix_server, tmp_path, kinds["process"].executor, row) as place:
        async with place.worker() as worker:
            with place.run.fault(row):
                async with place.somebody_else():
                    waiter = asyncio.ensure_future(worker.do("async", LONG, "first"))
                    await place.until_somebody_waits()
                    await in_time(worker.interceptor.close(), f"{row}: close returns")
                assert await in_time(waiter, f"{row}: the waiter ends") == "done"


@pytest.mark.parametrize("times", [2, 5])
async def test_close_many_times(
    times: int, matrix_server: RedisServer, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    """However often it is closed while bodies run, at once or in turn, they keep their lock."""
    row = f"closed {times} times while held"
    with scene(matrix_server, tmp_path, kinds["process"].executor, row) as place:
        async with place.worker() as worker:
            with place.run.fault(row):
                body = asyncio.ensure_future(worker.do("async", LONG, "first"))
                await place.saw("first", "began")
                closing = (worker.interceptor.close() for _ in range(times))
                await in_time(asyncio.gather(*closing), f"{row}: they return")
                await asyncio.sleep(LEASE / 2)
                await in_time(worker.interceptor.close(), f"{row}: the last one returns")
                assert await body == "done", f"{row}: its lease was not renewed any more"
