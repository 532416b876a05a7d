"""Requests that are executed after they were given up, and grants that were long on their way."""

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from flaky_store import FlakyStore
from redis_tools import LEASE, QUEUEING, new_claim
from stage import until

from lock_interceptor import keeper as keepers
from lock_interceptor.keeper import Hold, LeaseKeeper
from lock_interceptor.lease import Lease, clock
from lock_interceptor.store import Claim


@pytest.fixture
def store() -> FlakyStore:
    """A store."""
    return FlakyStore()


@pytest.fixture
async def keeper(monkeypatch: pytest.MonkeyPatch, store: FlakyStore) -> AsyncIterator[LeaseKeeper]:
    """A keeper that soon makes sure of what was given up."""
    monkeypatch.setattr(keepers, "LATE", 0.3)
    keeper = LeaseKeeper(store)
    yield keeper
    await keeper.close()


def hold_of(claim: Claim, token: int = 0) -> Hold:
    """What is given to the keeper to be given back; without a token if it was never known to be granted."""
    lease = Lease("lock", token, 0, expires=clock() + 30, deadline=math.inf)
    return Hold(claim, lease, 30.0, lambda: None)


@pytest.mark.parametrize("busy", [False, True])
async def test_a_request_that_is_executed_after_it_was_given_up(
    store: FlakyStore, keeper: LeaseKeeper, *, busy: bool
) -> None:
    """It keeps no slot for a whole lease, and no place in line: a moment later it is given back again."""
    claim = new_claim()
    other = new_claim(claim.lock)
    if busy:
        await store.acquire(other, lease=LEASE)
    await keeper.release(hold_of(claim))
    await store.acquire(claim, lease=LEASE, queueing=QUEUEING)

    async def gone() -> bool:
        state = await store.inspect(claim.lock)
        return not state.waiting and [holder.owner for holder in state.holders] == [other.owner] * busy

    assert not await gone()
    await until(gone, "its being given back")


async def test_it_is_made_sure_of_at_the_end(
    monkeypatch: pytest.MonkeyPatch, store: FlakyStore, keeper: LeaseKeeper
) -> None:
    """A keeper that is closed does not wait for that moment, and does not leave it out."""
    monkeypatch.setattr(keepers, "LATE", 3600)
    claim = new_claim()
    await keeper.release(hold_of(claim))
    await store.acquire(claim, lease=LEASE)
    await keeper.close()
    assert not (await store.inspect(claim.lock)).holders


async def test_what_was_held_is_given_back_once(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """Who knows that it was granted knows, by the answer, that it is given back."""
    claim = new_claim()
    token = (await store.acquire(claim, lease=LEASE)).token  # type: ignore[union-attr]
    assert await keeper.release(hold_of(claim, token))
    await keeper.close()
    assert store.calls["release"] == 1


@pytest.mark.parametrize("how", ["release", "step back"])
async def test_an_echo_of_what_was_held(store: FlakyStore, keeper: LeaseKeeper, how: str) -> None:
    """A request that was not answered, and is executed when its lock has been given back, keeps no slot.

    The place in line, of which the next attempt may have taken possession, is left alone.
    """
    claim = new_claim()
    granted = await store.acquire(claim, lease=LEASE)
    hold = hold_of(claim, granted.token)  # type: ignore[union-attr]
    hold.echo_possible = True
    await (keeper.release(hold) if how == "release" else keeper.step_back(hold, LEASE))
    await store.acquire(claim, lease=LEASE)
    assert (await store.inspect(claim.lock)).holders
    following = replace(claim, owner="next")
    await store.acquire(following, lease=LEASE, queueing=QUEUEING)

    async def gone() -> bool:
        return claim.owner not in [holder.owner for holder in (await store.inspect(claim.lock)).holders]

    await until(gone, "its being given back")
    assert [waiter.waiter for waiter in (await store.inspect(claim.lock)).waiters] == [claim.waiter]


async def test_a_late_grant_is_renewed_in_time(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """Renewals are due by the beginning of the lease, of which a late answer has left little."""
    claim, length = new_claim(), 3.0
    token = (await store.acquire(claim, lease=timedelta(seconds=length))).token  # type: ignore[union-attr]
    lease = Lease("lock", token, 0, expires=clock() + 0.3 * length, deadline=math.inf)
    hold = Hold(claim, lease, length, lambda: None)
    keeper.keep(hold)
    await until(lambda: store.calls["renew"] or lease.lost, "a renewal")
    await until(lambda: lease.remaining > 0.3 * length, "its effect")
    assert not lease.lost
    assert await keeper.give_back(hold, 10)


async def test_a_store_that_is_back_just_before_the_end(store: FlakyStore, keeper: LeaseKeeper) -> None:
    """Giving back is not given up while the lease lasts, so the slot is free as soon as it can be."""
    claim, length = new_claim(), 3.0
    token = (await store.acquire(claim, lease=LEASE)).token  # type: ignore[union-attr]
    store.before["release"] = 1_000_000
    lease = Lease("lock", token, 0, expires=clock() + length, deadline=math.inf)
    answer = keeper.release(Hold(claim, lease, length, lambda: None))
    # by now the delay between two attempts is longer than what is left
    await until(lambda: lease.remaining < 0.4 * length, "most of the lease")
    store.before.clear()
    assert await answer
