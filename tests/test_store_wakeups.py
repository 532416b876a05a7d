"""Whom every store wakes: as many of the first in line as there are free places, and nobody else."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from store_cases import LEASE, PRESENCE, Bench

pytest_plugins = ["store_fixtures"]


def _claims(bench: Bench, count: int, limit: int) -> list[Any]:
    return [bench.claim(f"waiter{n}", limit=limit) for n in range(count)]


async def test_a_release_wakes_the_first_in_line(bench: Bench) -> None:
    """One free place wakes one waiter: the one that is next."""
    holder = bench.claim("holder")
    waiters = _claims(bench, 3, limit=1)
    await bench.hold(holder)
    for claim in waiters:
        await bench.wait(claim)
    async with bench.listening(*waiters) as events:
        await bench.release(holder)
        assert await bench.woken(events) == {"waiter0"}


async def test_each_release_wakes_as_many_as_there_are_free_places(bench: Bench) -> None:
    """The second free place wakes the second waiter too, and the first again in case it missed its call."""
    holders = [bench.claim(f"holder{n}", limit=2) for n in range(2)]
    waiters = _claims(bench, 3, limit=2)
    for claim in holders:
        await bench.hold(claim)
    for claim in waiters:
        await bench.wait(claim)
    async with bench.listening(*waiters) as events:
        await bench.release(holders[0])
        assert await bench.woken(events) == {"waiter0"}
        await bench.release(holders[1])
        assert await bench.woken(events) == {"waiter0", "waiter1"}


async def test_parked_and_absent_waiters_are_not_woken(bench: Bench) -> None:
    """A wake-up goes to somebody who can follow it."""
    holder = bench.claim("holder")
    parked, absent, present = waiters = _claims(bench, 3, limit=1)
    await bench.hold(holder)
    for claim in waiters:
        await bench.wait(claim)
    await bench.park(parked)
    bench.clock.step(PRESENCE)
    await bench.wait(present)
    async with bench.listening(*waiters) as events:
        await bench.release(holder)
        assert await bench.woken(events) == {present.owner}
    assert absent.waiter in await bench.line()


async def test_who_leaves_or_parks_passes_the_call_on(bench: Bench) -> None:
    """When the waiter that was called goes away instead, the next one is woken."""
    holder = bench.claim("holder")
    waiters = _claims(bench, 3, limit=1)
    await bench.hold(holder)
    for claim in waiters:
        await bench.wait(claim)
    await bench.release(holder)
    async with bench.listening(*waiters) as events:
        await bench.park(waiters[0])
        assert await bench.woken(events) == {"waiter1"}
        await bench.release(waiters[1])
        assert await bench.woken(events) == {"waiter2"}


async def test_a_grant_given_back_wakes_the_next(bench: Bench) -> None:
    """Parking a lock that is held frees it for the one behind."""
    holder, waiter = bench.claim("holder"), bench.claim("waiter")
    await bench.hold(holder)
    await bench.wait(waiter)
    async with bench.listening(waiter) as events:
        await bench.park(holder)
        assert await bench.woken(events) == {"waiter"}


async def test_a_raised_limit_wakes_waiters(bench: Bench) -> None:
    """The first to ask with a higher limit wakes as many others as there are places then."""
    await bench.hold(bench.claim("holder", limit=1))
    waiters = _claims(bench, 3, limit=1)
    for claim in waiters:
        await bench.wait(claim)
    async with bench.listening(*waiters) as events:
        await bench.hold(bench.claim("waiter0", limit=3))
        assert await bench.woken(events) == {"waiter1"}


async def test_who_finds_a_place_for_others_wakes_them(bench: Bench) -> None:
    """A waiter that asks behind a place which has come free by expiry wakes those it belongs to."""
    await bench.hold(bench.claim("dead"), lease=5)
    waiters = _claims(bench, 2, limit=1)
    for claim in waiters:
        await bench.wait(claim)
    bench.clock.step(5)
    async with bench.listening(*waiters) as events:
        await bench.wait(waiters[1])
        assert await bench.woken(events) == {"waiter0"}


async def test_nobody_is_woken_while_all_places_are_taken(bench: Bench) -> None:
    """Asking, renewing, and others that leave the line wake nobody when nothing is free."""
    holder, leaver = bench.claim("holder"), bench.claim("leaver")
    waiters = _claims(bench, 2, limit=1)
    await bench.hold(holder)
    for claim in (leaver, *waiters):
        await bench.wait(claim)
    async with bench.listening(*waiters) as events:
        await bench.renew(holder)
        await bench.hold(holder)
        await bench.wait(waiters[1])
        await bench.release(leaver)
        assert await bench.woken(events) == set()


async def test_listening_ends_with_the_block(bench: Bench) -> None:
    """Who listens no more is not called, and can listen again."""
    holder, waiter = bench.claim("holder"), bench.claim("waiter")
    await bench.hold(holder)
    await bench.wait(waiter)
    async with bench.listening(waiter) as events:
        pass
    await bench.release(holder)
    assert await bench.woken(events) == set()
    await bench.hold(waiter)
    await bench.wait(holder)
    async with bench.listening(holder) as events:
        await bench.release(waiter)
        assert await bench.woken(events) == {"holder"}


async def test_a_call_reaches_another_event_loop(bench: Bench) -> None:
    """A release from another thread and loop, as the keeper's are, wakes the waiter in its own."""
    holder, waiter = bench.claim("holder"), bench.claim("waiter")
    await bench.hold(holder)
    await bench.wait(waiter)

    async def give_back() -> None:
        assert await bench.renew(holder, LEASE)
        assert await bench.release(holder)
        await bench.store.close()

    async with bench.listening(waiter) as events:
        await asyncio.to_thread(_run_apart, give_back())
        assert await bench.woken(events) == {"waiter"}
        await bench.hold(waiter)


def _run_apart(work: Coroutine[Any, Any, None]) -> None:
    assert threading.current_thread() is not threading.main_thread()
    asyncio.run(work)
