"""`LeaseKeeper`: what it does with a lease when the store answers, does not answer, or says no."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from flaky_store import FlakyStore
from redis_tools import QUEUEING, new_claim
from stage import until
from structlog.testing import capture_logs

from lock_interceptor.keeper import Hold, LeaseKeeper, margin
from lock_interceptor.lease import Lease, clock
from lock_interceptor.renewing import in_bunches
from lock_interceptor.store import Claim, Granted

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


async def answered(future: asyncio.Future[Any]) -> Any:
    """What came of it."""
    return await asyncio.wait_for(future, 10)


async def test_renews(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """A lease is renewed before it ends, again and again."""
    lost: list[Hold] = []
    hold = await grant(store, lost)
    keeper.keep(hold)
    await until(lambda: store.calls["renew"] >= 6, "six renewals, which is two leases")
    assert not hold.lease.lost
    assert await answered(keeper.release(hold)) is True
    assert not lost


async def test_a_short_lease_after_long_ones(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """A new lease is looked at in time, however long those may wait that came before it."""
    long = []
    for _ in range(3):
        lease = Lease("long", 1, 0, expires=clock() + 600, deadline=clock() + 3600)
        long.append(Hold(new_claim(), lease, 600.0, lambda: None))
        keeper.keep(long[-1])
    lost: list[Hold] = []
    for _ in range(3):
        hold = await grant(store, lost)
        keeper.keep(hold)
        renewed = store.calls["renew"]
        await until(
            lambda renewed=renewed: store.calls["renew"] >= renewed + 4, "renewals for more than a lease"
        )
        assert not hold.lease.lost
        assert await answered(keeper.release(hold)) is True
    assert not lost
    for hold in long:
        await answered(keeper.release(hold))


async def test_what_is_given_back_is_not_renewed(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """However soon or late it is given back, nobody asks for it again, and nobody calls it lost."""
    lost: list[Hold] = []
    staying = await grant(store, lost)
    keeper.keep(staying)
    with capture_logs() as logs:
        for number in range(60):
            hold = await grant(store, lost)
            keeper.keep(hold)
            await asyncio.sleep(LENGTH / 100 * (number % 6))
            assert await keeper.give_back(hold, 10) is True
        renewed = store.calls["renew"]
        await until(lambda: store.calls["renew"] >= renewed + 4, "renewals of the one that stays")
    assert not lost
    assert "lock.lost" not in [entry["event"] for entry in logs]
    assert await answered(keeper.release(staying)) is True


async def test_a_renewal_that_a_release_overtakes(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """The store's "not held" is no loss when the lock has just been given back, and is not called one."""
    lost: list[Hold] = []
    hold = await grant(store, lost)
    began, go_on, renewed = threading.Event(), threading.Event(), threading.Event()
    renew = store.renew

    async def slow(claim: Claim, *, lease: timedelta) -> bool:
        began.set()
        go_on.wait(10)  # so that no cancellation can reach it
        return await renew(claim, lease=lease)

    release = store.release

    async def slow_answer(claim: Claim) -> bool:
        answer = await release(claim)
        go_on.set()
        # whatever follows from the renewal comes before what follows from this answer
        keeper._renewals.call_soon(renewed.set)  # noqa: SLF001 - nothing else tells when that is done
        await asyncio.to_thread(renewed.wait, 10)
        return answer

    store.renew, store.release = slow, slow_answer  # type: ignore[method-assign]
    with capture_logs() as logs:
        keeper.keep(hold)
        await until(began.is_set, "a renewal")
        assert await keeper.give_back(hold, 10) is True
        await keeper.close()
    assert not lost
    assert "lock.lost" not in [entry["event"] for entry in logs]


async def test_giving_back_is_bounded(keeper: LeaseKeeper, store: FlakyStore) -> None:
    """A store that does not answer keeps nobody; the lock is given back all the same."""
    hold = await grant(store, [])
    store.hung["release"] = 1
    keeper.keep(hold)
    start = clock()
    assert await keeper.give_back(hold, 0.2) is None
    assert clock() - start < 5
    await until(lambda: store.calls["release"] >= 2, "another try")
    await keeper.close()
    assert await holders(store, hold) == 0


@pytest.mark.parametrize("parked", [False, True])
async def test_a_late_release_leaves_the_next_attempt_its_place(
    store: FlakyStore, keeper: LeaseKeeper, *, parked: bool
) -> None:
    """Who gives back what had ended already does not take its next attempt out of the line."""
    hold = await grant(store, [])
    await store.release(hold.claim)
    other, following = new_claim(hold.claim.lock), replace(hold.claim, owner="next")
    await store.acquire(other, lease=timedelta(seconds=60))
    await store.acquire(following, lease=timedelta(seconds=60), queueing=QUEUEING)
    if parked:
        await store.park(following, keep=timedelta(seconds=60))
    assert await answered(keeper.release(hold)) is False
    assert [waiter.waiter for waiter in (await store.inspect(other.lock)).waiters] == [following.waiter]


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
