"""`InMemoryLockStore`: a lock store for one process, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from lock_interceptor.store import Claim, Granted, LockId, LockState, Queueing, WaiterState, Waiting
from lock_interceptor.testing.memory_lock import Holder, Lock, Place

MOST_ATTEMPTS = 3
"""So many of one waiter are known to be present; each but the last is over, and may not know it."""
SMALL_STEP_MS = 1000
"""A clock that steps back by no more than this is waited for; beyond it, all times move along."""


class InMemoryLockStore:
    """A `LockStore` for one process: all promises, no server, nothing to clean up.

    Workers, threads and event loops of the process may share it.

    Args:
        clock: returns seconds; by default a clock that never steps. A test that passes its own can let
            leases end without waiting for it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._locks: dict[LockId, Lock] = {}
        self._listeners: dict[LockId, list[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    async def acquire(
        self, claim: Claim, *, lease: timedelta, queueing: Queueing | None = None
    ) -> Granted | Waiting:
        """See `LockStore.acquire`."""
        with self._mutex:
            lock = self._current(claim.lock)
            ends = lock.now + _ms(lease)
            if holder := lock.holders.get(claim.owner):
                holder.ends = ends
                return Granted(token=holder.token, slot=holder.slot, ticket=holder.ticket)
            place = lock.places.get(claim.waiter)
            arrival = lock.last_ticket + 1
            ticket = place.ticket if place else min(max(claim.priority, 1), 9) * 10**11 + arrival
            rank = sum(other < ticket for other, _ in lock.present())
            free = claim.limit - len(lock.holders)
            parks = queueing is not None and queueing.presence is None
            if free > rank and not parks:
                used = ticket if place else 0
                holder = self._grant(lock, claim, ends, used)
                self._wake(claim.lock, free - 1)
                return Granted(token=holder.token, slot=holder.slot, ticket=used)
            if queueing is not None:
                lock.last_ticket = lock.last_ticket if place else arrival
                kept_until = lock.now + _ms(queueing.keep)
                attempts = list(place.others(claim, lock.now).items()) if place else []
                if queueing.presence is not None:
                    until = lock.now + _ms(queueing.presence)
                    attempts = [*attempts, (claim.owner, (claim.party.attempt, until))][-MOST_ATTEMPTS:]
                lock.places[claim.waiter] = Place(ticket, kept_until, dict(attempts), claim.party)
            self._wake(claim.lock, free)
            if queueing is None:
                return lock.refusal(claim, ticket, rank)
            return lock.waiting(ticket, rank, stands=True)

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """See `LockStore.renew`."""
        with self._mutex:
            if claim.lock not in self._locks:
                return False
            lock = self._current(claim.lock)
            if holder := lock.holders.get(claim.owner):
                holder.ends = lock.now + _ms(lease)
            return holder is not None

    async def release(self, claim: Claim) -> bool:
        """See `LockStore.release`."""
        with self._mutex:
            if claim.lock not in self._locks:
                return False
            lock = self._current(claim.lock)
            if holder := lock.holders.pop(claim.owner, None):
                held, mean = max(lock.now - holder.since, 0), lock.mean_hold or 0
                # slow to rise, quick to fall
                lock.mean_hold = math.floor(mean + (held - mean) / (2 if held < mean else 8))
            else:
                lock.step_out(claim)
            self._wake(claim.lock, claim.limit - len(lock.holders))
            return holder is not None

    async def park(self, claim: Claim, *, ticket: int = 0, keep: timedelta) -> None:
        """See `LockStore.park`."""
        with self._mutex:
            if claim.lock not in self._locks:
                return
            lock = self._current(claim.lock)
            holder = lock.holders.pop(claim.owner, None)
            place = lock.places.get(claim.waiter)
            used = (holder and holder.ticket) or (lock.remembered(ticket, place) if ticket else 0)
            ticket = min((each for each in (place and place.ticket, used) if each), default=0)
            if ticket and not lock.step_out(claim, ticket):
                lock.places[claim.waiter] = Place(ticket, lock.now + _ms(keep), {}, claim.party)
            self._wake(claim.lock, claim.limit - len(lock.holders))

    async def inspect(self, lock: LockId, *, waiters: int = 100) -> LockState:
        """See `LockStore.inspect`."""
        with self._mutex:
            known = self._locks.get(lock, Lock())
            now = max(self._now_us() // 1000 + known.behind, known.now)
            holders = sorted(known.holders.items(), key=lambda item: item[1].slot)
            line = [
                WaiterState(waiter=name, present=place.present(now), party=place.party)
                for name, place in sorted(known.places.items(), key=lambda item: item[1].ticket)
                if place.kept_until > now
            ]
            return LockState(
                holders=tuple(holder.state(owner, now) for owner, holder in holders if holder.ends > now),
                waiters=tuple(line[:waiters]),
                waiting=len(line),
            )

    @asynccontextmanager
    async def wakeups(self, claim: Claim) -> AsyncIterator[asyncio.Event]:
        """See `LockStore.wakeups`."""
        event = asyncio.Event()
        event.set()  # a call may have come between asking and listening
        listener = (claim.waiter, asyncio.get_running_loop(), event)
        with self._mutex:
            self._listeners.setdefault(claim.lock, []).append(listener)
        try:
            yield event
        finally:
            with self._mutex:
                self._listeners[claim.lock].remove(listener)
                if not self._listeners[claim.lock]:
                    del self._listeners[claim.lock]

    async def check(self) -> None:
        """See `LockStore.check`."""

    async def close(self) -> None:
        """See `LockStore.close`."""

    def _now_us(self) -> int:
        return round(self._clock() * 1e6)

    def _current(self, name: LockId) -> Lock:
        """The lock as it is now: without the holders and places whose time is over."""
        lock = self._locks.setdefault(name, Lock())
        now = self._now_us() // 1000 + lock.behind
        if now < lock.now - SMALL_STEP_MS:
            lock.behind += lock.now - now
        lock.now = now = max(now, lock.now)
        lock.holders = {owner: holder for owner, holder in lock.holders.items() if holder.ends > now}
        lock.places = {name: place for name, place in lock.places.items() if place.kept_until > now}
        for place in lock.places.values():
            if not place.present(now):
                place.attempts = {}
        return lock

    def _grant(self, lock: Lock, claim: Claim, ends: int, ticket: int) -> Holder:
        """Make this claim a holder, on the smallest free slot."""
        taken = {holder.slot for holder in lock.holders.values()}
        slot = next(slot for slot in itertools.count() if slot not in taken)
        lock.last_token = max(lock.last_token + 1, self._now_us())
        lock.step_out(claim)
        holder = Holder(lock.last_token, slot, lock.now, ends, ticket, claim.party)
        lock.holders[claim.owner] = holder
        return holder

    def _wake(self, name: LockId, free: int) -> None:
        """Tell the first waiters in line to ask again, as many as there are free slots."""
        called = {waiter for _, waiter in self._locks[name].present()[: max(free, 0)]}
        for waiter, loop, event in self._listeners.get(name, ()):
            if waiter in called:
                with contextlib.suppress(RuntimeError):  # its loop is closed, and it does not wait any more
                    loop.call_soon_threadsafe(event.set)


def _ms(duration: timedelta) -> int:
    return max(round(duration.total_seconds() * 1000), 1)
