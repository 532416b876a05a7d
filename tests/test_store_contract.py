"""What every store promises to who holds a lock: the limit, tokens, slots and leases."""

import asyncio

import pytest
from store_cases import LEASE, Bench

from lock_interceptor.store import LockId, LockStore, Party

pytest_plugins = ["store_fixtures"]

EDGE = 0.001
"""Seconds: leases are kept in milliseconds."""


async def test_it_is_a_lock_store(bench: Bench) -> None:
    """Each store has all the methods of the protocol."""
    assert isinstance(bench.store, LockStore)


@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_hold_than_the_limit_allows(bench: Bench, limit: int) -> None:
    """As many claims as the limit are granted, and no other until one is given back."""
    claims = [bench.claim(f"owner{n}", limit=limit) for n in range(limit + 2)]
    for claim in claims[:limit]:
        await bench.hold(claim)
    for claim in claims[limit:]:
        assert (await bench.wait(claim)).held == limit
    await bench.release(claims[0])
    await bench.hold(claims[limit])
    await bench.wait(claims[limit + 1])


async def test_many_at_once_do_not_pass_the_limit(bench: Bench) -> None:
    """Of claims that ask at the same moment exactly as many as the limit are granted."""
    answers = await asyncio.gather(*(bench.try_once(bench.claim(f"owner{n}", limit=4)) for n in range(40)))
    assert sum(answers) == 4
    assert len(await bench.owners()) == 4


async def test_asking_again_changes_nothing_but_the_lease(bench: Bench) -> None:
    """A claim that holds gets the same token and slot again, takes no second slot, and has a new lease."""
    claim, other = bench.claim("owner", limit=2), bench.claim("other", limit=2)
    first = await bench.hold(claim)
    bench.clock.step(LEASE - 1)
    assert await bench.hold(claim) == first
    await bench.hold(other)
    assert await bench.owners() == ["owner", "other"]
    bench.clock.step(LEASE - 1)
    left = {holder.owner: holder.lease_left.total_seconds() for holder in (await bench.look()).holders}
    assert left == {"owner": 1, "other": 1}


async def test_asking_again_tells_the_same_ticket(bench: Bench) -> None:
    """Who waited for the grant and missed the answer learns from the next one which place it used up."""
    holder, claim = bench.claim("holder"), bench.claim("owner")
    await bench.hold(holder)
    await bench.wait(claim)
    await bench.release(holder)
    granted = await bench.hold(claim)
    assert granted.ticket > 0
    assert await bench.hold(claim) == granted


async def test_tokens_rise_with_each_grant(bench: Bench) -> None:
    """Every grant has a higher token than all before it, also within the same microsecond."""
    tokens = []
    for n in range(50):
        claim = bench.claim(f"owner{n}", limit=3)
        tokens.append((await bench.hold(claim)).token)
        if n >= 2:
            await bench.release(bench.claim(f"owner{n - 2}", limit=3))
    assert tokens == sorted(set(tokens))


async def test_the_smallest_free_slot_is_taken(bench: Bench) -> None:
    """Slots are unique among holders, below the limit, and the smallest free one is given."""
    claims = [bench.claim(f"owner{n}", limit=5) for n in range(8)]
    assert [(await bench.hold(claim)).slot for claim in claims[:5]] == [0, 1, 2, 3, 4]
    for freed in (3, 1):
        await bench.release(claims[freed])
    assert (await bench.hold(claims[5])).slot == 1
    assert (await bench.hold(claims[6])).slot == 3
    await bench.release(claims[0])
    assert (await bench.hold(claims[7])).slot == 0


async def test_only_the_owner_renews_and_releases(bench: Bench) -> None:
    """Another owner can neither renew nor release a lease, not even one of the same waiter."""
    holder = bench.claim("owner", "waiter")
    await bench.hold(holder)
    for stranger in (bench.claim("stranger"), bench.claim("next-attempt", "waiter")):
        assert not await bench.renew(stranger)
        assert not await bench.release(stranger)
        await bench.park(stranger)
    assert await bench.owners() == ["owner"]
    assert await bench.renew(holder)
    assert await bench.release(holder)
    assert not await bench.release(holder)


async def test_renewing_makes_the_lease_last(bench: Bench) -> None:
    """A lease that is renewed in time lasts, each time from the moment of the renewal."""
    claim = bench.claim("owner")
    await bench.hold(claim)
    for _ in range(5):
        bench.clock.step(LEASE - EDGE)
        assert await bench.renew(claim)
    await bench.wait(bench.claim("other"))


async def test_a_renewal_may_shorten_the_lease(bench: Bench) -> None:
    """The lease ends as long after the renewal as it says, even if it would have lasted longer before."""
    claim = bench.claim("owner")
    await bench.hold(claim, lease=60)
    assert await bench.renew(claim, lease=5)
    bench.clock.step(5)
    assert not await bench.renew(claim)


async def test_renewing_never_creates(bench: Bench) -> None:
    """Nothing comes to be by renewing what was never held, was given back, or has expired."""
    claim = bench.claim("owner")
    assert not await bench.renew(claim)
    await bench.hold(claim)
    await bench.release(claim)
    assert not await bench.renew(claim)
    late = bench.claim("late")
    await bench.hold(late)
    bench.clock.step(LEASE)
    assert not await bench.renew(late)
    assert not await bench.renew(late)
    assert await bench.owners() == []


async def test_a_lease_lasts_to_the_millisecond(bench: Bench) -> None:
    """A place is taken until the last millisecond of the lease, and free from then on."""
    await bench.hold(bench.claim("owner"))
    bench.clock.step(LEASE - EDGE)
    assert (await bench.wait(bench.claim("other"))).next_expiry.total_seconds() == EDGE
    bench.clock.step(EDGE)
    await bench.hold(bench.claim("other"))
    assert await bench.owners() == ["other"]


async def test_releasing_an_expired_lease_tells_so(bench: Bench) -> None:
    """Giving back what has expired returns False and leaves the next holder alone."""
    late, other = bench.claim("late"), bench.claim("other")
    await bench.hold(late)
    bench.clock.step(LEASE)
    await bench.hold(other)
    assert not await bench.release(late)
    assert await bench.owners() == ["other"]


async def test_tokens_rise_after_a_lease_expired(bench: Bench) -> None:
    """The holder that follows an expired one has the higher token, so that late writes can be told."""
    first = await bench.hold(bench.claim("late"))
    bench.clock.step(LEASE)
    assert (await bench.hold(bench.claim("other"))).token > first.token


async def test_a_lower_limit_evicts_nobody(bench: Bench) -> None:
    """Holders stay when the limit is lowered; nobody is admitted until fewer than the new limit hold."""
    old = [bench.claim(f"owner{n}", limit=3) for n in range(3)]
    for claim in old:
        await bench.hold(claim)
    lower = bench.claim("lower", limit=2)
    assert (await bench.wait(lower)).held == 3
    assert all([await bench.renew(claim) for claim in old])
    await bench.release(old[0])
    await bench.wait(lower)
    await bench.release(old[1])
    granted = await bench.hold(lower)
    assert granted.slot == 0
    assert await bench.owners() == ["lower", "owner2"]


async def test_slots_stay_below_a_lowered_limit(bench: Bench) -> None:
    """A slot that a holder keeps from a higher limit does not push the next one beyond the new limit."""
    old = [bench.claim(f"owner{n}", limit=4) for n in range(4)]
    for claim in old:
        await bench.hold(claim)
    for claim in old[:3]:
        await bench.release(claim)
    assert (await bench.hold(bench.claim("lower", limit=2))).slot == 0


async def test_locks_do_not_know_each_other(bench: Bench) -> None:
    """Locks that differ in the application, the name or the key are independent."""
    ids = [LockId("a", "b:c"), LockId("a:b", "c"), LockId("a", "b", "c"), LockId("a", "b"), LockId("b", "a")]
    for lock in ids:
        bench.lock = lock
        await bench.hold(bench.claim("same-owner", "same-waiter"), lease=1)
    assert not await bench.try_once(bench.claim("other"))


async def test_inspecting_tells_who_holds(bench: Bench) -> None:
    """Holders come in the order of their slots, with token, lease, time and party."""
    party = Party(workflow="order-7", activity="pick", activity_id="3", attempt=2, worker="w1")
    first = await bench.hold(bench.claim("first", limit=2, party=party))
    bench.clock.step(4)
    second = await bench.hold(bench.claim("second", limit=2))
    bench.clock.step(1)
    one, two = (await bench.look()).holders
    assert (one.owner, one.token, one.slot, one.party) == ("first", first.token, first.slot, party)
    assert (two.owner, two.token, two.slot, two.party) == ("second", second.token, second.slot, Party())
    assert [one.held_for.total_seconds(), two.held_for.total_seconds()] == [5, 1]
    assert [one.lease_left.total_seconds(), two.lease_left.total_seconds()] == [LEASE - 5, LEASE - 1]


async def test_inspecting_changes_nothing(bench: Bench) -> None:
    """A look leaves leases and places as they are, and leaves out what has expired."""
    assert (await bench.look()).holders == ()
    await bench.hold(bench.claim("owner"))
    await bench.wait(bench.claim("waiter"))
    assert await bench.look() == await bench.look()
    bench.clock.step(LEASE)
    state = await bench.look()
    assert state.holders == ()
    assert [(waiter.waiter, waiter.present) for waiter in state.waiters] == [("for-waiter", False)]


async def test_the_mean_hold_runs_along(bench: Bench) -> None:
    """The mean starts from nothing; a longer hold moves it by an eighth of the way, a shorter one by half."""
    waiter = bench.claim("waiter")
    for seconds, mean in ((8, 1.0), (17, 3.0), (1, 2.0)):
        holder = bench.claim(f"for{seconds}")
        await bench.hold(holder)
        bench.clock.step(seconds)
        await bench.release(holder)
        await bench.hold(holder)
        assert (await bench.wait(waiter)).mean_hold.total_seconds() == mean
        await bench.release(waiter)
        bench.clock.step(LEASE)
