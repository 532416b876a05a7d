"""One attempt's way to its locks: ask, wait, give up. Knows the store, and neither Redis nor Temporal."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

import structlog

from lock_interceptor import waiting as policy
from lock_interceptor.errors import (
    LockBusy,
    LockError,
    LockLost,
    LockNotAcquired,
    LockStoreUnavailable,
)
from lock_interceptor.keeper import Hold, LeaseKeeper, margin
from lock_interceptor.lease import Lease, clock
from lock_interceptor.store import Claim, Granted, LockStore, Queueing, Waiting

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


def new_owner() -> str:
    """An owner id: single-use, so that no late answer can be taken for another acquisition's."""
    return secrets.token_hex(16)


@dataclass(eq=False, slots=True)
class _Try:
    """Where the attempt stands with one lock."""

    want: Want
    claim: Claim
    queueing: Queueing
    hold: Hold | None = None
    asked: bool = False
    """The claim may stand in line, or hold the lock without our knowing."""


class Acquisition:
    """Takes all locks of one attempt, or none."""

    def __init__(
        self,
        store: LockStore,
        keeper: LeaseKeeper,
        wants: Sequence[Want],
        attempt: Attempt,
        *,
        interval: float,
        max_wait: float,
        on_lost: Callable[[], None],
    ) -> None:
        """`interval` (between polls) and `max_wait` are seconds; the keeper's thread calls `on_lost`."""
        self._store = store
        self._keeper = keeper
        self._attempt = attempt
        self._interval = interval
        self._on_lost = on_lost
        self._hot_until = attempt.started + policy.hot_budget(attempt.allowance, max_wait)
        self._deadline = attempt.started + attempt.allowance.schedule_to_close
        queueing = Queueing(presence=policy.presence(interval), keep=policy.keep_place(attempt.allowance))
        # one global order for everybody, so that no two attempts wait for each other
        self._tries = [
            _Try(want, want.claim, queueing) for want in sorted(wants, key=lambda want: want.claim.lock)
        ]

    async def acquire(self) -> tuple[Hold, ...]:
        """Wait for all locks, holding none while one is busy.

        Raises:
            LockBusy: a lock with ``fail_fast`` is not free.
            LockNotAcquired: the attempt has waited as long as it may.
            LockStoreUnavailable: the store has not answered for as long.
            LockLost: a lock was lost again while another one was asked for.
            BaseException: whatever `Attempt.check` raises.
        """
        blocked, times = self._tries[0], 0
        while True:
            if (times := times + 1) > 2:
                # two attempts that both got what the other one needs could swap it for ever
                await asyncio.sleep(random.uniform(0, min(0.0025 * 2**times, 0.5)))  # noqa: S311 - as below
            await self._wait_for(blocked)
            for entry in self._tries:
                if entry.hold is None and await self._ask_patiently(entry) is not None:
                    blocked = entry
                    break
            else:
                holds = tuple(entry.hold for entry in self._tries if entry.hold is not None)
                for hold in holds:
                    _check_still_held(hold)
                self._attempt.check()
                return holds
            for entry in self._tries:
                if entry.hold is not None:
                    await self._step_back(entry)

    def abandon(self, *, keep_place: bool) -> list[concurrent.futures.Future[Any]]:
        """Leave nothing behind but, if it is to be kept, the place in line. Goes on in the background.

        There is no place to keep for an activity that cannot come back.
        """
        left: list[concurrent.futures.Future[Any]] = []
        keep_place = keep_place and policy.may_return(self._attempt.allowance, self._deadline - clock())
        for entry in self._tries:
            if entry.hold is None and not entry.asked:
                continue
            hold = entry.hold or Hold(
                entry.claim, self._lease(entry, Granted(token=0, slot=0), clock()), 0, _ignore
            )
            if keep_place and not entry.want.fail_fast:
                left.append(self._keeper.step_back(hold, entry.queueing.keep))
            else:
                left.append(self._keeper.release(hold))
        return left

    async def _wait_for(self, entry: _Try) -> None:
        """Wait in the worker until this lock is granted."""
        state = await self._ask_patiently(entry)
        if state is None:
            return
        lock = str(entry.claim.lock)
        log.info("lock.waiting", lock=lock, place=state.place, held=state.held, **entry.claim.party.as_dict())
        async with self._store.wakeups(entry.claim) as wake, self._attempt.watch(wake.set):
            while state is not None:
                await self._sleep(wake, state)
                if clock() >= self._hot_until:
                    raise await self._not_acquired(entry, state)
                state = await self._ask_patiently(entry)

    async def _sleep(self, wake: asyncio.Event, state: Waiting) -> None:
        """Until a wake-up, the next poll, or the end of what this attempt may wait."""
        jitter = random.random()  # noqa: S311 - spreads load, hides nothing
        until = min(clock() + policy.next_poll(state, self._interval, jitter), self._hot_until)
        while not wake.is_set() and (left := until - clock()) > 0:
            self._attempt.check()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), min(left, self._attempt.check_every))
        wake.clear()
        self._attempt.check()

    async def _ask_patiently(self, entry: _Try) -> Waiting | None:
        """Ask until the store answers: an outage is waited out like a busy lock. None when granted."""
        delay = 0.05
        while True:
            try:
                return await self._ask(entry)
            except LockStoreUnavailable as error:
                self._attempt.check()
                left, lock = self._hot_until - clock(), str(entry.claim.lock)
                if left <= delay:
                    back = policy.retry_delay(None, 1, self._deadline - clock(), self._interval)
                    raise LockStoreUnavailable(f"lock {lock}: {error}", back) from error.__cause__
                log.warning(
                    "lock.store_unavailable", lock=lock, error=str(error), **entry.claim.party.as_dict()
                )
            await asyncio.sleep(delay * random.uniform(0.5, 1))  # noqa: S311 - as above
            delay = min(delay * 2, MAX_OUTAGE_DELAY)

    async def _ask(self, entry: _Try) -> Waiting | None:
        """One request to the store. None when granted."""
        want, claim, sent = entry.want, entry.claim, clock()
        length = min(want.lease.total_seconds(), self._deadline - sent)
        if length < MIN_LEASE:
            raise LockNotAcquired(
                f"lock {claim.lock}: schedule_to_close_timeout ran out before the lock was free"
            )
        entry.asked = True
        answer = await self._store.acquire(
            claim, lease=timedelta(seconds=length), queueing=None if want.fail_fast else entry.queueing
        )
        if isinstance(answer, Waiting):
            if want.fail_fast:
                entry.asked = False
                raise LockBusy(f"lock {claim.lock} is not free: {answer.held} of {claim.limit} held")
            return answer
        lease = self._lease(entry, answer, sent)
        if lease.lost:
            # asking again with the same owner starts its lease anew
            raise LockStoreUnavailable("the answer came after its lease was over")
        entry.hold = Hold(claim, lease, want.lease.total_seconds(), self._on_lost, answer.ticket)
        self._keeper.keep(entry.hold)
        waited = round(clock() - self._attempt.started, 3)
        log.debug("lock.acquired", **entry.hold.facts(), waited=waited)
        return None

    def _lease(self, entry: _Try, grant: Granted, sent: float) -> Lease:
        """The lease counts from before the request was sent: at the server it cannot have begun earlier."""
        length = min(entry.want.lease.total_seconds(), self._deadline - sent)
        lock = entry.claim.lock
        return Lease(
            lock.name,
            grant.token,
            grant.slot,
            key=lock.key,
            expires=sent + length - margin(length),
            deadline=self._deadline,
        )

    async def _step_back(self, entry: _Try) -> None:
        """Give back a lock because another is busy, with its old place in line."""
        hold, entry.hold = entry.hold, None
        if hold is not None:
            await settle([self._keeper.step_back(hold, entry.queueing.keep)])
            entry.claim = replace(entry.claim, owner=new_owner())

    async def _not_acquired(self, entry: _Try, state: Waiting) -> LockNotAcquired:
        """The error to yield with: it says what whoever looks at the waiting activity wants to know."""
        lock, limit = entry.claim.lock, entry.claim.limit
        delay = policy.retry_delay(state, limit, self._deadline - clock(), self._interval)
        text = f"lock {lock}: {state.held} of {limit} held, place {state.ahead + 1} in line"
        if state.settling is not None:
            text += (
                f", nothing is granted for {state.settling.total_seconds():.0f} s after a failover or restart"
            )
        expected = policy.expected_wait(state, limit)
        if expected is not None:
            text += f", expected wait about {max(round(expected), 1)} s"
        with contextlib.suppress(LockError):
            holders = (await self._store.inspect(lock, waiters=0)).holders
            listed = [
                f"{holder.party} since {holder.held_for.total_seconds():.0f} s" for holder in holders[:3]
            ]
            more = [f"{len(holders) - 3} more"] if len(holders) > 3 else []
            text += f"; held by {', '.join(listed + more)}" if holders else ""
        log.info(
            "lock.parked",
            lock=str(lock),
            place=state.ahead + 1,
            back_in=delay.total_seconds(),
            **entry.claim.party.as_dict(),
        )
        return LockNotAcquired(text, delay)


def _check_still_held(hold: Hold) -> None:
    """One lock may have been lost while another one was asked for."""
    if hold.lease.lost:
        raise LockLost(f"lock {hold.lease.label} was lost before the body began: {hold.lease.lost_because}")


def _ignore() -> None:
    pass


async def settle(futures: Sequence[concurrent.futures.Future[Any]], seconds: float = 1.0) -> bool:
    """Wait for clean-ups within a bound, and through cancellation. Returns whether there was one.

    What is not done by then goes on in the background.
    """
    pending = {asyncio.wrap_future(future) for future in futures}
    until, cancelled = clock() + seconds, False
    while pending and (left := until - clock()) > 0:
        try:
            _, pending = await asyncio.wait(pending, timeout=left)
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
