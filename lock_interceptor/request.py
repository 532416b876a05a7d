"""One attempt's request for one lock: ask for it, wait in line, or be told when to come back.

Knows the store, and neither Redis nor Temporal.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

import structlog

from lock_interceptor import waiting as policy
from lock_interceptor.errors import LockBusy, LockError, LockNotAcquired, LockStoreUnavailable
from lock_interceptor.keeper import Hold, LeaseKeeper, margin
from lock_interceptor.lease import Lease, clock
from lock_interceptor.room import Seat, WaitingRoom
from lock_interceptor.store import Claim, Granted, HolderState, LockStore, Queueing, Waiting

log = structlog.get_logger("lock_interceptor")

MIN_LEASE = 0.2
"""Seconds of lease below which it is too late to start."""
MAX_OUTAGE_DELAY = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """One lock that an attempt needs."""

    claim: Claim
    lease: timedelta
    fail_fast: bool = False


class Attempt(Protocol):
    """What has to be known of the attempt."""

    started: float
    """Reading of the clock."""
    allowance: policy.Allowance
    check_every: float
    """Seconds after which `check` wants to be called again while waiting."""

    def check(self) -> None:
        """Heartbeat if that is due, and raise if the attempt must not go on waiting."""

    def watch(self, notify: Callable[[], None]) -> contextlib.AbstractAsyncContextManager[None]:
        """While entered, call `notify` as soon as `check` has something to say."""

    def keeps_place(self) -> bool:
        """Whether another attempt may follow this one, which is being cancelled."""

    def cancelled(self) -> BaseException:
        """The error with which this attempt ends when it is cancelled before the body began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the requests of one attempt have in common."""

    store: LockStore
    keeper: LeaseKeeper
    room: WaitingRoom
    attempt: Attempt
    interval: float
    """Seconds between polls."""
    max_wait: float
    """Seconds that an attempt waits in the worker at most."""
    on_lost: Callable[[], None]
    """Called in the keeper's thread."""

    @property
    def budget(self) -> float:
        """Seconds that this attempt may wait in the worker."""
        return policy.hot_budget(self.attempt.allowance, self.max_wait)

    @property
    def until_deadline(self) -> float:
        """Seconds until schedule-to-close."""
        return self.attempt.started + self.attempt.allowance.schedule_to_close - clock()


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
        self._stays = policy.has_to_stay(allowance, terms.budget)
        # the claim may stand in line, or hold the lock without our knowing
        self._asked = False

    async def wait(self) -> None:
        """Wait in line until the lock is granted.

        Raises:
            LockBusy: it is not free, and the activity does not want to wait.
            LockNotAcquired: the attempt has waited as long as it may, or had better come back later.
            LockStoreUnavailable: the store has not answered for as long.
            BaseException: whatever `Attempt.check` raises.
        """
        state = await self.ask()
        if state is None:
            return
        limit = self._claim.limit
        seat = None
        if self._stays or policy.waits_hot(state, limit, self._hot_until - clock()):
            guessed = state.mean_hold is None
            seat = self._terms.room.enter(policy.turn(state, limit), stays=self._stays, guessed=guessed)
        if seat is None:
            raise await self._come_back(state)
        try:
            log.info("lock.waiting", place=state.ahead + 1, held=state.held, **self._facts())
            await self._wait_on(seat, state)
        finally:
            self._terms.room.leave(seat)

    async def ask(self) -> Waiting | None:
        """Ask until the store answers: an outage is waited out like a busy lock. None when granted.

        Raises:
            LockBusy, LockNotAcquired, LockStoreUnavailable, BaseException: as `wait`.
        """
        delay = 0.05
        while True:
            try:
                return await self._ask_once()
            except LockStoreUnavailable as error:
                self._terms.attempt.check()
                if self._hot_until - clock() <= delay:
                    back = policy.retry_delay(None, 1, self._terms.budget, self._terms.until_deadline)
                    raise LockStoreUnavailable(f"lock {self._claim.lock}: {error}", back) from error.__cause__
                log.warning("lock.store_unavailable", error=str(error), **self._facts())
            await asyncio.sleep(delay * random.uniform(0.5, 1))  # noqa: S311 - spreads load, hides nothing
            delay = min(delay * 2, MAX_OUTAGE_DELAY)

    def step_back(self) -> list[Future[Any]]:
        """Give the lock back because another one is busy, with its old place in line."""
        hold, self.hold = self.hold, None
        if hold is None:
            return []
        self._claim = replace(self._claim, owner=new_owner())
        return [self._terms.keeper.step_back(hold, self._queueing.keep)]

    def abandon(self, *, keep_place: bool) -> list[Future[Any]]:
        """Leave nothing behind but, if it is to be kept, the place in line. Goes on in the background."""
        if self.hold is None and not self._asked:
            return []
        hold = self.hold or self._hold(Granted(token=0, slot=0), clock())
        if keep_place and not self.want.fail_fast:
            return [self._terms.keeper.step_back(hold, self._queueing.keep)]
        return [self._terms.keeper.release(hold)]

    async def _wait_on(self, seat: Seat, state: Waiting) -> None:
        """Wait in the worker, asking whenever it may pay."""
        waiting: Waiting | None = state
        async with self._terms.store.wakeups(self._claim) as wake, self._terms.attempt.watch(wake.set):
            loop = asyncio.get_running_loop()
            seat.on_eviction = lambda: loop.call_soon_threadsafe(wake.set)
            while waiting is not None:
                await self._sleep(wake, waiting)
                if seat.evicted or clock() >= self._hot_until:
                    raise await self._come_back(waiting)
                waiting = await self.ask()
                if waiting is not None:
                    seat.tell(policy.turn(waiting, self._claim.limit), guessed=waiting.mean_hold is None)

    async def _sleep(self, wake: asyncio.Event, state: Waiting) -> None:
        """Until a wake-up, the next poll, or the end of what this attempt may wait."""
        jitter = random.random()  # noqa: S311 - as above
        until = min(clock() + policy.next_poll(state, self._interval, jitter), self._hot_until)
        while not wake.is_set() and (left := until - clock()) > 0:
            self._terms.attempt.check()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), min(left, self._terms.attempt.check_every))
        wake.clear()
        self._terms.attempt.check()

    async def _ask_once(self) -> Waiting | None:
        """One request to the store. None when granted."""
        want, claim, sent = self.want, self._claim, clock()
        length = min(want.lease.total_seconds(), self._terms.until_deadline)
        if length < MIN_LEASE:
            raise LockNotAcquired(
                f"lock {claim.lock}: schedule_to_close_timeout ran out before the lock was free"
            )
        self._asked = True
        answer = await self._terms.store.acquire(
            claim, lease=timedelta(seconds=length), queueing=None if want.fail_fast else self._queueing
        )
        if isinstance(answer, Waiting):
            if want.fail_fast:
                self._asked = False
                raise LockBusy(f"lock {claim.lock} is not free: {answer.held} of {claim.limit} held")
            return answer
        hold = self._hold(answer, sent)
        if hold.lease.lost:
            # asking again with the same owner starts its lease anew
            raise LockStoreUnavailable("the answer came after its lease was over")
        self.hold = hold
        self._terms.keeper.keep(hold)
        log.debug("lock.acquired", **hold.facts(), waited=round(clock() - self._terms.attempt.started, 3))
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
        return Hold(self._claim, lease, full, self._terms.on_lost, grant.ticket)

    async def _come_back(self, state: Waiting) -> LockNotAcquired:
        """The error to yield with: it says what whoever looks at the waiting activity wants to know."""
        lock, limit = self._claim.lock, self._claim.limit
        delay = policy.retry_delay(state, limit, self._terms.budget, self._terms.until_deadline)
        holders: tuple[HolderState, ...] = ()
        with contextlib.suppress(LockError):
            holders = (await self._terms.store.inspect(lock, waiters=0)).holders
        log.info("lock.parked", place=state.ahead + 1, back_in=delay.total_seconds(), **self._facts())
        return LockNotAcquired(policy.explain(lock, limit, state, holders), delay)

    def _facts(self) -> dict[str, Any]:
        return {"lock": str(self._claim.lock), **self._claim.party.as_dict()}


def new_owner() -> str:
    """An owner id: single-use, so that no late answer can be taken for another acquisition's."""
    return secrets.token_hex(16)
