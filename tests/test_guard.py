"""`Guard`: one attempt under its locks, when answers get lost or leases end too early."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from flaky_store import FlakyStore
from patience import Patient
from redis_tools import QUEUEING, new_claim
from stage import until
from structlog.testing import capture_logs

from lock_interceptor import LockBusy, LockLost, LockNotAcquired, LockStoreUnavailable, current_lease
from lock_interceptor.guard import Guard
from lock_interceptor.keeper import LeaseKeeper
from lock_interceptor.lease import Lease
from lock_interceptor.room import WaitingRoom
from lock_interceptor.store import Granted, LockId, LockState, Waiting
from lock_interceptor.terms import Want
from lock_interceptor.waiting import Allowance
from lock_interceptor.watchdog import Watchdog

LEASE = timedelta(seconds=2)
ALWAYS = 1_000_000
SHORT = Allowance(schedule_to_close=600, start_to_close=2)
LAST = Allowance(schedule_to_close=600, start_to_close=1, attempts_left=0)


@pytest.fixture
def store() -> FlakyStore:
    return FlakyStore()


@pytest.fixture
async def guard(store: FlakyStore) -> AsyncIterator[Guard]:
    keeper = LeaseKeeper(store)
    yield Guard(
        store, keeper, WaitingRoom(100), retry_interval=timedelta(seconds=0.2), max_wait=timedelta(seconds=60)
    )
    await keeper.close()


def want(name: str = "lock", *, fail_fast: bool = False) -> Want:
    """A wish for a lock."""
    return Want(claim=new_claim(LockId("app", name)), lease=LEASE, fail_fast=fail_fast)


async def state(store: FlakyStore, name: str = "lock") -> LockState:
    """What the store knows of a lock."""
    return await store.inspect(LockId("app", name))


async def until_idle(store: FlakyStore, name: str = "lock") -> None:
    """Wait until nobody holds or waits."""

    async def idle() -> bool:
        now = await state(store, name)
        return not now.holders and not now.waiting

    await until(idle, "an idle lock")


async def body(leases: tuple[Lease, ...], watchdog: Watchdog) -> str:
    """What runs under the lock."""
    assert all(not lease.lost for lease in leases)
    return current_lease().label


async def test_lost_answer(guard: Guard, store: FlakyStore) -> None:
    """A grant whose answer got lost is asked for again, and is one grant."""
    store.after["acquire"] = 2
    tokens = []

    async def noting(leases: tuple[Lease, ...], watchdog: Watchdog) -> None:
        tokens.extend(holder.token for holder in (await state(store)).holders)
        tokens.extend(lease.token for lease in leases)

    await guard.run([want()], Patient(), noting)
    assert len(tokens) == 2
    assert len(set(tokens)) == 1
    assert store.calls["acquire"] == 3
    await until_idle(store)


async def test_outage_is_waited_out(guard: Guard, store: FlakyStore) -> None:
    """A store that does not answer for a while is waited for like a busy lock, and that is said once."""
    store.before["acquire"] = 3
    with capture_logs() as logs:
        assert await guard.run([want()], Patient(), body) == "lock"
    assert [entry["event"] for entry in logs].count("lock.store_unavailable") == 1


async def test_long_outage(guard: Guard, store: FlakyStore) -> None:
    """An attempt that may not wait longer yields, and says why; what it may have got is given back."""
    store.after["acquire"] = ALWAYS
    with pytest.raises(LockStoreUnavailable, match="lock lock: acquire got lost") as caught:
        await guard.run([want()], Patient(allowance=SHORT), body)
    assert caught.value.retry_after is not None
    assert caught.value.retry_after >= timedelta(seconds=1)
    assert not (await state(store)).holders


async def test_cancelled_before_the_answer(guard: Guard, store: FlakyStore) -> None:
    """An attempt that is cancelled while nobody knows whether it holds the lock does not keep it."""
    store.after["acquire"] = ALWAYS
    run = asyncio.create_task(guard.run([want()], Patient(), body))
    await until(lambda: store.calls["acquire"] >= 2, "two requests")
    assert len((await state(store)).holders) == 1
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not (await state(store)).holders
    await until_idle(store)


class Cancelled(Patient):
    """An activity in a thread or process, which nothing interrupts: it has to be asked."""

    def check(self) -> None:
        """Stop."""
        raise asyncio.CancelledError


async def test_cancelled_before_the_body(guard: Guard, store: FlakyStore) -> None:
    """The body of an attempt that was cancelled in the meantime does not begin, though the lock was free."""
    began = []

    async def beginning(leases: tuple[Lease, ...], watchdog: Watchdog) -> None:
        began.append(leases)

    with pytest.raises(asyncio.CancelledError):
        await guard.run([want()], Cancelled(), beginning)
    assert store.calls["acquire"] == 1
    assert not began
    await until_idle(store)


async def test_body_fails(guard: Guard, store: FlakyStore) -> None:
    """The body's error passes through unchanged, and the lock is free."""
    error = ValueError("its own")

    async def failing(leases: tuple[Lease, ...], watchdog: Watchdog) -> None:
        raise error

    with pytest.raises(ValueError, match="its own") as caught:
        await guard.run([want()], Patient(), failing)
    assert caught.value is error
    assert error.__cause__ is None
    await until_idle(store)


async def test_gone_before_it_was_given_back(guard: Guard, store: FlakyStore) -> None:
    """A lock that the store had forgotten was lost, even if that shows at the very end only."""
    wish = want()

    async def robbed(leases: tuple[Lease, ...], watchdog: Watchdog) -> str:
        await store.release(wish.claim)
        return "a result that nobody may trust"

    with pytest.raises(LockLost, match="no longer knew of it when it was given back"):
        await guard.run([wish], Patient(), robbed)


async def test_own_error_after_the_loss(guard: Guard, store: FlakyStore) -> None:
    """When a body fails after its lease was lost, the loss is reported, and the body's error is the cause."""
    wish, error = want(), ValueError("a consequence")

    async def robbed(leases: tuple[Lease, ...], watchdog: Watchdog) -> str:
        await store.release(wish.claim)
        await until(lambda: leases[0].lost, "loss")
        raise error

    with pytest.raises(LockLost) as caught:
        await guard.run([wish], Patient(), robbed)
    assert caught.value.__cause__ is error


async def test_lost_while_asking_for_another(guard: Guard, store: FlakyStore) -> None:
    """The body does not begin under a lock that was lost while the next one was asked for."""
    first, second = want("a"), want("b")
    acquire, began = store.acquire, []

    async def slowly(claim: Any, **how: Any) -> Granted | Waiting:
        if claim.lock.name == "b":
            (holder,) = (await state(store, "a")).holders
            assert holder.owner == first.claim.owner
            await store.release(first.claim)
            await until(lambda: store.calls["renew"], "a renewal")
        return await acquire(claim, **how)

    async def beginning(leases: tuple[Lease, ...], watchdog: Watchdog) -> None:
        began.append(leases)

    store.acquire = slowly
    with pytest.raises(LockLost, match="lock a was lost before the body began"):
        await guard.run([first, second], Patient(), beginning)
    assert not began
    await until_idle(store, "b")


async def test_busy_among_several(guard: Guard, store: FlakyStore) -> None:
    """Where one lock of several must not be waited for, all that was got before is given back."""
    other = new_claim(LockId("app", "b"))
    await store.acquire(other, lease=timedelta(minutes=1))
    with pytest.raises(LockBusy):
        await guard.run([want("a"), want("b", fail_fast=True)], Patient(), body)
    assert len((await state(store, "b")).holders) == 1
    assert not (await state(store, "b")).waiting
    await until_idle(store, "a")


@pytest.mark.parametrize(("allowance", "kept"), [(SHORT, 1), (LAST, 0)])
async def test_place_of_an_attempt_that_yields(
    guard: Guard, store: FlakyStore, allowance: Allowance, kept: int
) -> None:
    """The place is kept for the next attempt, and given up if there cannot be one.

    It comes straight back, and counts as present meanwhile: nobody behind it goes first.
    """
    other = new_claim(LockId("app", "lock"))
    await store.acquire(other, lease=timedelta(minutes=1))
    with pytest.raises(LockNotAcquired, match="1 of 1 held, place 1 in line"):
        await guard.run([want()], Patient(allowance=allowance), body)
    now = await state(store)
    assert (now.waiting, [waiter.present for waiter in now.waiters]) == (kept, [True] * kept)
    await store.release(other)
    later = await store.acquire(new_claim(other.lock), lease=timedelta(minutes=1), queueing=QUEUEING)
    assert isinstance(later, Waiting if kept else Granted)


async def test_place_of_one_that_is_sent_away(store: FlakyStore) -> None:
    """Who finds no seat is not waited for by those behind it, but keeps its place."""
    keeper, other, mine = LeaseKeeper(store), new_claim(LockId("app", "lock")), want()
    guard = Guard(
        store, keeper, WaitingRoom(0), retry_interval=timedelta(seconds=0.2), max_wait=timedelta(seconds=60)
    )
    await store.acquire(other, lease=timedelta(minutes=1))
    with pytest.raises(LockNotAcquired, match="1 of 1 held, place 1 in line"):
        await guard.run([mine], Patient(), body)
    assert [waiter.present for waiter in (await state(store)).waiters] == [False]
    await store.release(other)
    later = await store.acquire(new_claim(other.lock), lease=timedelta(minutes=1), queueing=QUEUEING)
    assert isinstance(later, Granted)
    assert [waiter.waiter for waiter in (await state(store)).waiters] == [mine.claim.waiter]
    await keeper.close()


async def test_place_of_one_that_may_hold_the_lock(guard: Guard, store: FlakyStore) -> None:
    """Who yields without knowing whether its last request was granted gives back what it may hold."""
    other = new_claim(LockId("app", "lock"))
    await store.acquire(other, lease=timedelta(minutes=1))
    run = asyncio.create_task(guard.run([want()], Patient(allowance=SHORT), body))

    async def in_line() -> bool:
        return (await state(store)).waiting > 0

    await until(in_line, "it stands in line")
    store.after["acquire"] = ALWAYS
    await store.release(other)
    with pytest.raises(LockStoreUnavailable):
        await run
    now = await state(store)
    assert not now.holders
    assert [waiter.present for waiter in now.waiters] == [False]


async def test_one_that_steps_back_keeps_its_place(guard: Guard, store: FlakyStore) -> None:
    """A lock that is given back because another one is busy is got again before those who came later."""
    busy, holder, later = (new_claim(LockId("app", name)) for name in ("b", "a", "a"))
    await store.acquire(holder, lease=timedelta(minutes=1))
    await store.acquire(busy, lease=timedelta(minutes=1))
    run = asyncio.create_task(guard.run([want("b"), want("a")], Patient(), body_of_two))

    async def waits(name: str) -> bool:
        return (await state(store, name)).waiting > 0

    await until(lambda: waits("a"), "it waits for the first lock")
    await store.acquire(later, lease=timedelta(minutes=1), queueing=QUEUEING)
    await store.release(holder)
    await until(lambda: waits("b"), "it waits for the second lock")
    line = (await state(store, "a")).waiters
    assert [waiter.waiter == later.waiter for waiter in line] == [False, True]
    await store.release(busy)
    assert await run == {"a", "b"}
    assert [waiter.waiter for waiter in (await state(store, "a")).waiters] == [later.waiter]


async def body_of_two(leases: tuple[Lease, ...], watchdog: Watchdog) -> set[str]:
    """What runs under two locks."""
    return {lease.label for lease in leases}


@pytest.mark.parametrize("early", [False, True])
async def test_told_once(store: FlakyStore, early: bool) -> None:
    """However many locks are lost, and whenever, the body is told once, so that it can clean up in peace."""
    watchdog, told = LeaseKeeper(store).watchdog(), []
    with contextlib.ExitStack() as body_runs:
        if not early:
            body_runs.enter_context(watchdog.interrupting(lambda: told.append("lost")))
        for _ in range(2):
            await asyncio.to_thread(watchdog.notify)
        if early:
            body_runs.enter_context(watchdog.interrupting(lambda: told.append("lost")))
        assert told == ["lost"]
