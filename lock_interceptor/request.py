"""One attempt's request for one lock: ask for it, wait in line, or be told when to come back.

Knows the store, and neither Redis nor Temporal.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from lock_interceptor import telemetry
from lock_interceptor import waiting as policy
from lock_interceptor.conflict import refusal
from lock_interceptor.errors import LockNotAcquired, LockStoreUnavailable
from lock_interceptor.hold import Hold, margin
from lock_interceptor.keeper import settle
from lock_interceptor.lease import Lease, clock
from lock_interceptor.pausing import NO_PLACE, setting, sleep, until_place
from lock_interceptor.room import Seat
from lock_interceptor.store import Granted, Queueing, Waiting
from lock_interceptor.terms import Terms, Want, new_owner

MIN_LEASE = 0.2
"""Seconds of lease below which it is too late to start."""
MAX_OUTAGE_DELAY = 1.0


class LockRequest:
    """Where an attempt stands with one lock."""

    def __init__(self, want: Want, terms: Terms) -> None:
        self.want = want
        self.hold: Hold | None = None
        """What is held, once it is."""
        self._terms = terms
        self._claim = want.claim
        self._hot_until = terms.attempt.started + terms.budget
        allowance = terms.attempt.allowance
        self._interval = policy.poll_interval(terms.interval, want.lease.total_seconds())
        self._queueing = Queueing(presence=policy.presence(self._interval), keep=policy.keep_place(allowance))
        self._parking = replace(self._queueing, presence=None)
        self._stays = policy.has_to_stay(allowance, terms.budget)
        # the claim may stand in line, or hold the lock without our knowing
        self._asked = False
        # it stands in line, and holds nothing
        self._in_line = False
        # it may be granted the lock there; otherwise it is parked, for want of a place for its body
        self._present = False
        self._was_sent_away = False
        # what it was told last, and in how many seconds it comes back
        self._yields: tuple[Waiting, float] | None = None
        # a request was not answered, and may yet be executed
        self._echo_possible = False

    async def wait(self) -> None:
        """Wait in line until the lock is granted.

        Raises:
            LockBusy: somebody else holds it, and the activity does not want to wait.
            LockNotAcquired: the attempt has waited as long as it may, or had better come back later.
            LockStoreUnavailable: the store has not answered for as long.
            BaseException: whatever `Attempt.check` raises.
        """
        state = await self.ask()
        if state is None:
            return
        limit = self._claim.limit
        seat = None
        room, left = self._terms.room, self._hot_until - clock()
        if self._stays or room.half_empty or policy.waits_hot(state, limit, left):
            guessed = state.mean_hold is None
            turn = policy.turn(state, limit)
            seat = room.enter(turn, stays=self._stays, guessed=guessed, body=self._terms.body)
        if seat is None:
            raise self._sent_away(state)
        try:
            telemetry.waiting(self._claim, state)
            await self._wait_on(seat, state)
        finally:
            room.leave(seat)
            telemetry.waiting_ended(self._claim)

    async def ask(self) -> Waiting | None:
        """Ask until the store answers: an outage is waited out like a busy lock. None when granted.

        Without a place for its body it only stands in line.

        Raises:
            LockBusy, LockNotAcquired, LockStoreUnavailable, BaseException: as `wait`.
        """
        delay, told = 0.05, False
        while True:
            if self.want.fail_fast or not self._asked:
                or_full = not self.want.fail_fast  # to be parked needs no place
                await until_place(self._terms, self._claim.lock, self._hot_until, or_full=or_full)
            try:
                return await self._ask_once()
            except LockStoreUnavailable as error:
                telemetry.request_failed(self._claim)
                self._terms.attempt.check()
                if self._hot_until - clock() <= delay:
                    raise LockStoreUnavailable(
                        f"lock {self._claim.lock}: {error}", policy.AT_ONCE
                    ) from error.__cause__
                if not told:  # once, however often it tries: hundreds may be waiting
                    telemetry.store_unavailable(self._claim, error)
                told = True
            await asyncio.sleep(delay * random.uniform(0.5, 1))  # noqa: S311 - spreads load, hides nothing
            delay = min(delay * 2, MAX_OUTAGE_DELAY)

    def step_back(self) -> list[asyncio.Task[Any]]:
        """Give the lock back because another one is busy, with its old place in line."""
        hold, self.hold = self.hold, None
        if hold is None:
            return []
        self._claim, self._echo_possible = replace(self._claim, owner=new_owner(self._claim.waiter)), False
        return [self._terms.keeper.step_back(hold, self._queueing.keep)]

    def abandon(self, *, keep_place: bool, at_once: bool) -> list[asyncio.Task[Any]]:
        """Leave nothing behind but, if it is to be kept, the place in line. Goes on in the background.

        One that comes back `at_once`, and not because it found no seat, goes on counting as present for that
        time: nobody behind it goes first meanwhile, also when its worker is restarted.
        """
        if self.hold is None and not self._asked:
            return []
        stays_in_line = not self._present or (at_once and not self._was_sent_away)
        if keep_place and self._in_line and stays_in_line:
            return []
        hold = self.hold or self._hold(Granted(token=0, slot=0), clock())
        if keep_place and not self.want.fail_fast:
            return [self._terms.keeper.step_back(hold, self._queueing.keep)]
        return [self._terms.keeper.release(hold)]

    async def _wait_on(self, seat: Seat, state: Waiting) -> None:
        """Wait in the worker, asking whenever it may pay, and for the lock only with a place for the body."""
        waiting: Waiting | None = state
        body, limit, budget = self._terms.body, self._claim.limit, self._terms.budget
        async with self._terms.store.wakeups(self._claim) as wake, self._terms.attempt.watch(wake.set):
            seat.on_eviction = call = setting(wake)
            with body.waiting(call):
                while waiting is not None:
                    pause = partial(self._sleep, wake, seat, waiting)
                    if self._present:
                        await pause(policy.next_poll(waiting, self._interval, random.random()))  # noqa: S311
                    # others that ask are done in milliseconds; while bodies have all places, it asks to be
                    # parked, so that it is not in the way of waiters in other workers
                    await body.until_taken(pause, or_full=self._present)
                    waiting = await self.ask()
                    if waiting is not None:
                        turn, left = policy.turn(waiting, limit), self._hot_until - clock()
                        self._terms.room.tell(seat, turn, guessed=waiting.mean_hold is None)
                        if not self._stays and policy.renews_budget(waiting, limit, budget, left):
                            raise self._not_acquired(waiting, policy.AT_ONCE)

    async def _sleep(
        self, wake: asyncio.Event, seat: Seat, state: Waiting, seconds: float = math.inf
    ) -> None:
        """Until a call, for so long at most, or until the end of what this attempt may wait here."""
        await sleep(wake, min(clock() + seconds, self._hot_until), self._terms.attempt)
        if seat.evicted:
            raise self._sent_away(state)
        if clock() >= self._hot_until:
            raise self._not_acquired(state, policy.AT_ONCE)

    async def _ask_once(self) -> Waiting | None:
        """One request to the store. None when granted."""
        want, claim, sent = self.want, self._claim, clock()
        length = min(want.lease.total_seconds(), self._terms.until_deadline)
        if length < MIN_LEASE:
            raise LockNotAcquired(
                f"lock {claim.lock}: schedule_to_close_timeout ran out before the lock was free"
            )
        body = self._terms.body
        has_place = body.take()
        self._asked, self._in_line = True, False
        queueing = self._queueing if has_place else self._parking
        try:
            answer = await self._terms.store.acquire(
                claim, lease=timedelta(seconds=length), queueing=None if want.fail_fast else queueing
            )
        except BaseException as error:  # a cancellation, too: the request may be on its way
            self._echo_possible = True
            if isinstance(error, LockStoreUnavailable):
                body.give_back(denied=True)
            raise
        if isinstance(answer, Waiting):
            body.stand(claim.lock, answer.ticket, present=has_place)
            if has_place:  # one that it got meanwhile is for asking again
                body.give_back(denied=True)
            self._present = has_place
            if want.fail_fast:
                self._asked = False
                raise refusal(claim, answer, self._terms.until_deadline)
            self._in_line = True
            return answer
        hold = self._hold(answer, sent)
        if not body.take():
            # an earlier request has been executed after all, and now there is no place for the body
            self.hold = hold
            await settle(self.step_back())
            return await self._ask_once()
        if hold.lease.lost:
            body.give_back(denied=True)
            # asking again with the same owner starts its lease anew
            raise LockStoreUnavailable("the answer came after its lease was over")
        self.hold = hold
        body.run()
        self._terms.keeper.keep(hold)
        waited = clock() - self._terms.attempt.started
        # one that comes back to its place in line has waited since long before
        returned = answer.ticket and claim.party.attempt > 1
        telemetry.acquired(
            claim, hold.lease, waited=waited, waited_in_all=self._terms.attempt.waited if returned else waited
        )
        return None

    def _hold(self, grant: Granted, sent: float) -> Hold:
        """The lease counts from before the request was sent: at the server it cannot have begun earlier."""
        full, lock = self.want.lease.total_seconds(), self._claim.lock
        deadline = clock() + self._terms.until_deadline
        length = min(full, deadline - sent)
        lease = Lease(
            lock.name,
            grant.token,
            grant.slot,
            key=lock.key,
            expires=sent + length - margin(length),
            deadline=deadline,
        )
        return Hold(self._claim, lease, full, self._terms.on_lost, grant.ticket, self._echo_possible)

    def _sent_away(self, state: Waiting) -> LockNotAcquired:
        """The error to yield with where there is no seat to wait in."""
        self._was_sent_away = True
        budget, waited, left = self._terms.budget, self._terms.attempt.waited, self._terms.until_deadline
        limit = self._claim.limit
        delay = policy.retry_delay(state, limit, budget, waited=waited, until_deadline=left)
        return self._not_acquired(state, delay)

    def _not_acquired(self, state: Waiting, delay: timedelta) -> LockNotAcquired:
        """The error to yield with: it says what whoever looks at the waiting activity wants to know."""
        self._yields = state, delay.total_seconds()
        why = policy.explain(self._claim.lock, self._claim.limit, state)
        return LockNotAcquired(why if self._present else f"{why}; {NO_PLACE}", delay)

    def report(self) -> None:
        """Log that the attempt has yielded, if it has."""
        if self._yields is not None:
            telemetry.parked(self._claim, *self._yields)
