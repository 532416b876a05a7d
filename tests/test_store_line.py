"""What every store promises to who waits: the place in line, parked or present."""

import pytest
from store_cases import KEEP, LEASE, PRESENCE, Bench

from lock_interceptor.store import Granted, Party

pytest_plugins = ["store_fixtures"]

EDGE = 0.001
"""Seconds: times are kept in milliseconds."""


async def test_first_come_first_served(bench: Bench) -> None:
    """Whoever asks first among those waiting gets the next free place, in whatever order they ask again."""
    holder = bench.claim("holder")
    waiters = [bench.claim(f"waiter{n}") for n in range(4)]
    await bench.hold(holder)
    assert [(await bench.wait(claim)).place for claim in waiters] == [1, 2, 3, 4]
    for n, claim in enumerate(waiters):
        await bench.release(holder)
        for later in reversed(waiters[n + 1 :]):
            await bench.wait(later)
        await bench.hold(claim)
        holder = claim


@pytest.mark.parametrize("queues", [True, False])
async def test_a_newcomer_overtakes_nobody(bench: Bench, queues: bool) -> None:
    """A free place belongs to the present waiter, whether the newcomer stands in line or asks only once."""
    holder, waiter, newcomer = bench.claim("holder"), bench.claim("waiter"), bench.claim("newcomer")
    await bench.hold(holder)
    await bench.wait(waiter)
    await bench.release(holder)
    granted = isinstance(await bench.ask(newcomer), Granted) if queues else await bench.try_once(newcomer)
    assert not granted
    await bench.hold(waiter)


async def test_who_asks_once_does_not_queue(bench: Bench) -> None:
    """Without queueing nothing stays behind, and the answer tells the place there would have been."""
    await bench.hold(bench.claim("holder"))
    await bench.wait(bench.claim("waiter"))
    assert not await bench.try_once(bench.claim("once"))
    assert await bench.line() == ["for-waiter"]


async def test_as_many_pass_as_there_are_places(bench: Bench) -> None:
    """With two free places the first two in line get them in any order, and the third does not."""
    holders = [bench.claim(f"holder{n}", limit=2) for n in range(2)]
    first, second, third = waiters = [bench.claim(f"waiter{n}", limit=2) for n in range(3)]
    for claim in holders:
        await bench.hold(claim)
    for claim in waiters:
        await bench.wait(claim)
    for claim in holders:
        await bench.release(claim)
    await bench.wait(third)
    await bench.hold(second)
    await bench.wait(third)
    await bench.hold(first)


async def test_priority_goes_before_arrival(bench: Bench) -> None:
    """A lower priority number goes first; among equals the time of arrival decides."""
    await bench.hold(bench.claim("holder"))
    for owner, priority in (("low", 5), ("normal", 3), ("high", 1), ("high2", 1), ("normal2", 3)):
        await bench.wait(bench.claim(owner, priority=priority))
    assert await bench.line() == ["for-high", "for-high2", "for-normal", "for-normal2", "for-low"]
    answer = await bench.wait(bench.claim("last", priority=4))
    assert (answer.place, answer.ahead) == (5, 4)


async def test_priorities_out_of_range_count_as_the_nearest(bench: Bench) -> None:
    """Priorities below 1 and above 9 are taken as 1 and 9, so that none leaves the line."""
    await bench.hold(bench.claim("holder"))
    for owner, priority in (("nine", 9), ("huge", 10**6), ("one", 1), ("negative", -5)):
        await bench.wait(bench.claim(owner, priority=priority))
    assert await bench.line() == ["for-one", "for-negative", "for-nine", "for-huge"]


async def test_the_place_belongs_to_the_waiter(bench: Bench) -> None:
    """The next attempt, with another owner and perhaps another priority, stands where the last one stood."""
    await bench.hold(bench.claim("holder"))
    await bench.wait(bench.claim("attempt1", "waiter"))
    await bench.wait(bench.claim("other"))
    assert (await bench.wait(bench.claim("attempt2", "waiter", priority=9))).place == 1
    assert await bench.line() == ["waiter", "for-other"]


async def test_a_parked_waiter_leaves_no_place_idle(bench: Bench) -> None:
    """A parked waiter is passed over, and has its old place before the others when it is back."""
    holder, parked, other = bench.claim("holder"), bench.claim("parked"), bench.claim("other")
    await bench.hold(holder)
    await bench.wait(parked)
    await bench.wait(other)
    await bench.park(parked)
    answer = await bench.wait(other)
    assert (answer.place, answer.ahead) == (1, 1)
    await bench.release(holder)
    await bench.hold(other)
    await bench.wait(bench.claim("newcomer"))
    assert (await bench.wait(parked)).place == 1


async def test_who_cannot_use_a_grant_stands_in_line_parked(bench: Bench) -> None:
    """It gets its place in the order of arrival, and no grant, and nobody has to wait for it."""
    first, second = bench.claim("first"), bench.claim("second")
    answer = await bench.stand_parked(first)
    assert (answer.place, answer.held) == (1, 0)
    assert [(each.waiter, each.present) for each in (await bench.look()).waiters] == [("for-first", False)]

    await bench.hold(second)
    third = await bench.wait(bench.claim("third"))
    assert (await bench.wait(first)).ticket == answer.ticket < third.ticket
    await bench.release(second)
    await bench.hold(first)


async def test_who_cannot_use_a_grant_passes_a_call_on(bench: Bench) -> None:
    """One that was called, and asks to be parked, keeps its place, and the next one is called."""
    holder, first, second = (bench.claim(name) for name in ("holder", "first", "second"))
    await bench.hold(holder)
    ticket = (await bench.wait(first)).ticket
    await bench.wait(second)
    async with bench.listening(first, second) as events:
        await bench.release(holder)
        assert await bench.woken(events) == {"first"}
        assert (await bench.stand_parked(first)).ticket == ticket
        assert await bench.woken(events) == {"second"}
    await bench.hold(second)


async def test_who_holds_is_told_so_when_it_asks_to_be_parked(bench: Bench) -> None:
    """The answer to its request before may have been lost."""
    claim = bench.claim("holder")
    grant = await bench.hold(claim)
    assert await bench.store.acquire(claim, **bench.parked()) == grant


async def test_parking_without_a_place_takes_none(bench: Bench) -> None:
    """Who neither waits nor holds has nothing to keep."""
    await bench.park(bench.claim("stranger"))
    await bench.hold(bench.claim("holder"))
    await bench.park(bench.claim("stranger"))
    assert await bench.line() == []


@pytest.mark.parametrize("answer_was_lost", [False, True])
async def test_a_grant_given_back_has_its_old_place(bench: Bench, answer_was_lost: bool) -> None:
    """Parking gives the lock back and the place again, even if the owner never learned of the grant."""
    holder, claim, later = bench.claim("holder"), bench.claim("owner"), bench.claim("later")
    await bench.hold(holder)
    await bench.wait(claim)
    await bench.wait(later)
    await bench.release(holder)
    granted = await bench.hold(claim)
    assert granted.ticket
    await bench.park(claim, ticket=0 if answer_was_lost else granted.ticket)
    assert await bench.owners() == []
    assert await bench.line() == ["for-owner", "for-later"]
    await bench.hold(later)
    await bench.wait(bench.claim("newcomer"))
    assert (await bench.wait(bench.claim("again", "for-owner"))).place == 1


async def test_a_grant_that_expired_has_its_old_place(bench: Bench) -> None:
    """The ticket brings the place back although the lease is over and somebody else holds the lock."""
    holder, claim = bench.claim("holder"), bench.claim("owner")
    await bench.hold(holder)
    await bench.wait(claim)
    await bench.release(holder)
    ticket = (await bench.hold(claim)).ticket
    bench.clock.step(LEASE)
    await bench.hold(holder)
    await bench.wait(bench.claim("newcomer"))
    for _ in range(2):
        await bench.park(claim, ticket=ticket)
    assert await bench.owners() == ["holder"]
    assert await bench.line() == ["for-owner", "for-newcomer"]


async def test_a_grant_without_a_wait_has_no_place(bench: Bench) -> None:
    """Who got the lock at once used no place up, and parking just gives the lock back."""
    claim = bench.claim("owner")
    assert (await bench.hold(claim)).ticket == 0
    await bench.park(claim)
    assert (await bench.owners(), await bench.line()) == ([], [])


async def test_an_absent_waiter_is_passed_over_at_once(bench: Bench) -> None:
    """Whoever has not asked again within the presence holds nobody up, and has its place when it is back."""
    holder, absent, present = bench.claim("holder"), bench.claim("absent"), bench.claim("present")
    await bench.hold(holder)
    await bench.wait(absent)
    bench.clock.step(PRESENCE - EDGE)
    await bench.wait(present)
    await bench.release(holder)
    await bench.wait(present)
    bench.clock.step(EDGE)
    await bench.hold(present)
    await bench.wait(bench.claim("newcomer"))
    assert (await bench.wait(absent)).place == 1


async def test_a_place_is_kept_as_long_as_was_said(bench: Bench) -> None:
    """A waiter that is back just before `keep` is over has its place, and one a moment later has not."""
    early, late, last = bench.claim("early"), bench.claim("late"), bench.claim("last")
    await bench.hold(bench.claim("holder"), lease=10_000)
    await bench.wait(early)
    await bench.wait(late)
    await bench.wait(last, keep=10_000)
    bench.clock.step(KEEP - EDGE)
    assert (await bench.wait(early)).ahead == 0
    bench.clock.step(EDGE)
    assert (await bench.wait(late)).ahead == 2
    assert await bench.line() == ["for-early", "for-last", "for-late"]


async def test_parking_sets_how_long_the_place_is_kept(bench: Bench) -> None:
    """A parked place is kept for as long as parking said, counted from then."""
    claim = bench.claim("parked")
    await bench.hold(bench.claim("holder"))
    await bench.wait(claim, keep=50)
    bench.clock.step(10)
    await bench.park(claim, keep=100)
    bench.clock.step(100 - EDGE)
    assert await bench.line() == ["for-parked"]
    bench.clock.step(EDGE)
    assert await bench.line() == []


async def test_leaving_frees_the_place(bench: Bench) -> None:
    """A release by a waiter takes it out of the line, and the one behind moves up."""
    holder, leaver, behind = bench.claim("holder"), bench.claim("leaver"), bench.claim("behind")
    await bench.hold(holder)
    await bench.wait(leaver)
    await bench.wait(behind)
    assert not await bench.release(leaver)
    assert (await bench.wait(behind)).ahead == 0
    assert (await bench.wait(leaver)).place == 2


@pytest.mark.parametrize("parked", [False, True])
async def test_a_late_release_leaves_the_next_attempt_its_place(bench: Bench, *, parked: bool) -> None:
    """An attempt that ends late gives its lock back without taking its successor out of the line."""
    first, second = bench.claim("attempt1", "waiter"), bench.claim("attempt2", "waiter")
    await bench.hold(first)
    await bench.wait(second)
    await bench.wait(bench.claim("other"))
    if parked:
        await bench.park(second)
    assert await bench.release(first)
    assert await bench.line() == ["waiter", "for-other"]
    await bench.hold(second)


async def test_no_ticket_is_given_to_two(bench: Bench) -> None:
    """Who remembers a ticket that the store forgot, and that somebody else got since, comes after him."""
    party = Party(workflow="order-7")
    first, other = bench.claim("first"), bench.claim("other", party=party)
    forgotten = 300_000_000_001  # the first with the usual priority
    await bench.hold(bench.claim("holder"))
    await bench.wait(other)
    await bench.park(first, ticket=forgotten)
    await bench.wait(bench.claim("newcomer"))
    assert await bench.line() == ["for-other", "for-first", "for-newcomer"]
    parties = [waiter.party.workflow for waiter in (await bench.look()).waiters]
    assert parties == ["order-7", "", ""]


async def test_a_waiter_is_told_where_it_stands(bench: Bench) -> None:
    """Place counts those present, ahead counts all, held the holders, and the nearest expiry is told."""
    await bench.hold(bench.claim("short", limit=2), lease=7)
    await bench.hold(bench.claim("long", limit=2), lease=70)
    for owner in ("parked", "present"):
        await bench.wait(bench.claim(owner, limit=2))
    await bench.park(bench.claim("parked"))
    bench.clock.step(2)
    answer = await bench.wait(bench.claim("me", limit=2))
    assert (answer.place, answer.ahead, answer.held) == (2, 2, 2)
    assert answer.next_expiry.total_seconds() == 5
    assert (answer.mean_hold, answer.settling) == (None, None)


async def test_a_waiter_is_told_who_holds(bench: Bench) -> None:
    """Those who have held the lock for longest, three at most, as `inspect` shows them."""
    parties = [Party(workflow=f"order-{n}", activity="pick") for n in range(4)]
    for n in (2, 0, 1, 3):
        await bench.hold(bench.claim(f"holder{n}", limit=4, party=parties[n]), lease=20 + n)
        bench.clock.step(1)
    answer = await bench.wait(bench.claim("me", limit=4))
    assert [holder.owner for holder in answer.holders] == ["holder2", "holder0", "holder1"]
    assert [holder.party for holder in answer.holders] == [parties[2], parties[0], parties[1]]
    assert [holder.held_for.total_seconds() for holder in answer.holders] == [4, 3, 2]
    holders = (await bench.look()).holders
    assert set(answer.holders) == {holder for holder in holders if holder.owner != "holder3"}


async def test_inspecting_tells_who_waits(bench: Bench) -> None:
    """Waiters come in order, parked and present ones, at most as many as asked for, with their number."""
    party = Party(workflow="order-7", activity="pick")
    await bench.hold(bench.claim("holder"))
    for n in range(4):
        await bench.wait(bench.claim(f"waiter{n}", party=party))
    await bench.park(bench.claim("waiter1", party=party))
    state = await bench.look(waiters=3)
    assert state.waiting == 4
    assert [waiter.waiter for waiter in state.waiters] == ["for-waiter0", "for-waiter1", "for-waiter2"]
    assert [waiter.present for waiter in state.waiters] == [True, False, True]
    assert {waiter.party for waiter in state.waiters} == {party}
    assert (await bench.look(waiters=0)).waiters == ()
