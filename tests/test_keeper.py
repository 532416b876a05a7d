"""`LeaseKeeper`: what it does with a lease when the store answers, does not answer, or says no."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest
from flaky_store import FlakyStore
from redis_tools import new_claim
from stage import until
from structlog.testing import capture_logs

from lock_interceptor.keeper import Hold, LeaseKeeper, in_bunches, margin
from lock_interceptor.lease import Lease, clock
from lock_interceptor.store import Granted

LENGTH = 1.0
ALWAYS = 1_000_000


@pytest.fixture
def store() -> FlakyStore:
    return FlakyStore()


@pytest.fixture
async def keeper(store: FlakyStore) -> AsyncIterator[LeaseKeeper]:
    keeper = LeaseKeeper(store)
    yield keeper
    await keeper.close()


async def grant(store: FlakyStore, lost: list[Hold], *, until_deadline: float = 60) -> Hold:
    """A lease as the guard makes it; it adds itself to `lost`."""
    ours, sent = new_claim(), clock()
    granted = await store.acquire(ours, lease=timedelta(seconds=LENGTH))
    assert isinstance(granted, Granted)
    expires, deadline = sent + LENGTH - margin(LENGTH), sent + until_deadline
    lease = Lease("lock", granted.token, granted.slot, expires=expires, deadline=deadline)
    hold = Hold(ours, lease, LENGTH, lambda: lost.append(hold))
    return hold


async def holders(store: FlakyStore, hold: Hold) -> int:
    """How many hold the lock."""
    return len((await store.inspect(hold.claim.lock)).holders)


async def answered(future: Future[Any]) -> Any:
    """What the keeper's thread answered."""
    return await asyncio.wait_for(asyncio.wrap_future(future), 10)


async def test_renews(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """A lease is renewed before it ends, again and again."""
    lost: list[Hold] = []
    hold = await grant(store, lost)
    keeper.keep(hold)
    await until(lambda: store.calls["renew"] >= 6, "six renewals, which is two leases")
    assert not hold.lease.lost
    assert await answered(keeper.release(hold)) is True
    assert not lost


def test_renewals_of_many_locks_come_in_bunches() -> None:
    """Locks are renewed at different times, lest they all come at once; but at few, since waking up costs."""
    delays = [in_bunches(10.0, 10.0) for _ in range(1000)]
    assert all(9.0 <= delay <= 11.2 for delay in delays)
    moments = {round((clock() + in_bunches(10.0, 10.0)) * 100) for _ in range(1000)}
    assert 15 <= len(moments) <= 25


async def test_short_outage(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """Renewals that fail for less than a lease lose nothing: the lease is doubtful, and recovers."""
    lost: list[Hold] = []
    hold = await grant(store, lost)
    store.before["renew"] = 2
    with capture_logs() as logs:
        keeper.keep(hold)
        await until(lambda: "lock.recovered" in [entry["event"] for entry in logs], "recovery")
    assert [entry["event"] for entry in logs] == ["lock.doubtful", "lock.recovered"]
    assert not hold.lease.lost
    assert not lost
    await answered(keeper.release(hold))


async def test_long_outage(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """Renewals that fail for a whole lease lose it, and the one who holds it is told once."""
    lost: list[Hold] = []
    hold = await grant(store, lost)
    store.before["renew"] = ALWAYS
    keeper.keep(hold)
    await until(lambda: lost, "loss")
    assert lost == [hold]
    assert "before a renewal got through" in hold.lease.lost_because
    await answered(keeper.release(hold))


async def test_no_is_final(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """When the store does not know the lease any more it is lost at once."""
    lost: list[Hold] = []
    hold = await grant(store, lost)
    await store.release(hold.claim)
    keeper.keep(hold)
    await until(lambda: lost, "loss")
    assert hold.lease.remaining > 0
    assert "no longer knows of it" in hold.lease.lost_because
    assert store.calls["renew"] == 1


async def test_never_beyond_the_deadline(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """However often it is renewed, a lease ends with its activity's schedule_to_close_timeout."""
    lost: list[Hold] = []
    hold = await grant(store, lost, until_deadline=1.5)
    keeper.keep(hold)
    await until(lambda: lost, "loss")
    assert hold.lease.expires_at <= hold.lease.deadline
    assert hold.lease.lost_because == "schedule_to_close_timeout ran out"
    await answered(keeper.release(hold))


@pytest.mark.parametrize(("lost_way", "answer"), [("before", True), ("after", None)])
async def test_release_is_repeated(
    store: FlakyStore, keeper: LeaseKeeper, lost_way: str, answer: bool | None
) -> None:
    """Giving back is repeated until answered; after a lost answer "not held" may be our own doing."""
    hold = await grant(store, [])
    getattr(store, lost_way)["release"] = 2
    assert await answered(keeper.release(hold)) is answer
    assert store.calls["release"] == 3
    assert await holders(store, hold) == 0


async def test_release_gives_up_with_the_lease(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """Nothing is repeated once the lease would have ended by itself."""
    hold = await grant(store, [])
    store.before["release"] = ALWAYS
    with capture_logs() as logs:
        assert await answered(keeper.release(hold)) is None
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == ["lock.release_failed"]
    assert store.calls["release"] > 2


async def test_close_finishes_what_it_was_given(store: FlakyStore) -> None:
    """Closing waits for what is being given back, ends the thread, and is not for ever."""
    keeper, hold = LeaseKeeper(store), await grant(store, [])
    store.before["release"] = 2
    keeper.keep(hold)
    keeper.release(hold)
    await keeper.close()
    assert await holders(store, hold) == 0
    assert "lock_interceptor.keeper" not in [thread.name for thread in threading.enumerate()]

    again = await grant(store, [])
    assert await answered(keeper.release(again)) is True
    await keeper.close()
    await keeper.close()
