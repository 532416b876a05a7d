"""`Guard`: a cancel that comes while the body runs, or when it is done."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from flaky_store import FlakyStore
from patience import Patient
from redis_tools import new_claim
from stage import until

from lock_interceptor.guard import Guard
from lock_interceptor.keeper import LeaseKeeper
from lock_interceptor.lease import Lease
from lock_interceptor.room import WaitingRoom
from lock_interceptor.store import LockId
from lock_interceptor.terms import Want
from lock_interceptor.watchdog import Watchdog

LOCK = LockId("app", "lock")
WANT = Want(claim=new_claim(LOCK), lease=timedelta(minutes=1))


@pytest.fixture
def store() -> FlakyStore:
    return FlakyStore()


@pytest.fixture
async def guard(store: FlakyStore) -> AsyncIterator[Guard]:
    keeper, minute = LeaseKeeper(store), timedelta(minutes=1)
    yield Guard(store, keeper, WaitingRoom(100), retry_interval=minute, max_wait=minute)
    await keeper.close()


async def test_cancelled_while_running(guard: Guard, store: FlakyStore) -> None:
    """The cancel reaches the body, and the lock is free when the attempt has ended."""
    began, ended = asyncio.Event(), list[BaseException]()

    async def body(leases: tuple[Lease, ...], watchdog: Watchdog) -> None:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as error:
            assert (await store.inspect(LOCK)).holders
            ended.append(error)
            raise

    run = asyncio.create_task(guard.run([WANT], Patient(), body))
    await asyncio.wait_for(began.wait(), 10)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert ended
    assert not (await store.inspect(LOCK)).holders


async def test_cancelled_while_giving_back(guard: Guard, store: FlakyStore) -> None:
    """The lock is given back all the same, and what the body returned counts: it was done before."""
    store.before["release"] = 3

    async def body(leases: tuple[Lease, ...], watchdog: Watchdog) -> str:
        return "done"

    run = asyncio.create_task(guard.run([WANT], Patient(), body))
    await until(lambda: store.calls["release"], "a release that gets lost")
    run.cancel()
    assert await run == "done"
    assert store.calls["release"] == 4
    assert not (await store.inspect(LOCK)).holders


async def test_cancelled_while_the_store_says_nothing(guard: Guard, store: FlakyStore) -> None:
    """A request that is cut off is made again, and the end of the body still counts."""
    store.hung["release"] = 1

    async def body(leases: tuple[Lease, ...], watchdog: Watchdog) -> str:
        return "done"

    run = asyncio.create_task(guard.run([WANT], Patient(), body))
    await until(lambda: store.calls["release"], "a release that is not answered")
    run.cancel()
    assert await run == "done"
    assert store.calls["release"] == 2
    assert not (await store.inspect(LOCK)).holders
