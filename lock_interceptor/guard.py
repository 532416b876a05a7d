"""One attempt under its locks: acquire, run, give back. Knows the store, and neither Redis nor Temporal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from lock_interceptor import telemetry
from lock_interceptor.acquisition import Acquisition
from lock_interceptor.errors import LockLost, LockNotAcquired, LockStoreUnavailable
from lock_interceptor.hold import Hold
from lock_interceptor.keeper import CLEAN_UP_SECONDS, LeaseKeeper, settle
from lock_interceptor.lease import Lease, clock, held_leases
from lock_interceptor.places import BodyPlace
from lock_interceptor.room import WaitingRoom
from lock_interceptor.store import LockStore
from lock_interceptor.terms import Attempt, Terms, Want
from lock_interceptor.watchdog import Watchdog

Body = Callable[[tuple[Lease, ...], Watchdog], Awaitable[Any]]
"""What to run: it is told its leases, and by whom it is interrupted when one of them is lost."""


class Guard:
    """Runs attempts under their locks."""

    def __init__(
        self,
        store: LockStore,
        keeper: LeaseKeeper,
        room: WaitingRoom,
        *,
        retry_interval: timedelta,
        max_wait: timedelta,
    ) -> None:
        self._store = store
        self._keeper = keeper
        self._room = room
        self._interval = retry_interval.total_seconds()
        self._max_wait = max_wait.total_seconds()

    async def run(
        self, wants: Sequence[Want], attempt: Attempt, body: Body, place: BodyPlace | None = None
    ) -> Any:
        """Acquire all locks, run the body, and give them back whatever happens.

        The body has its `place` from when its locks are asked for; whoever gave it takes it back.

        Raises:
            LockBusy: a lock with ``fail_fast`` was not free.
            LockNotAcquired: a lock was not free within the time that this attempt may wait.
            LockStoreUnavailable: the store did not answer within that time.
            LockLost: a lease ended before the body did; the body's own error is the cause.
            BaseException: whatever the body, `Attempt.check` or `Attempt.cancelled` raises.
        """
        watchdog = self._keeper.watchdog()
        terms = Terms(
            store=self._store,
            keeper=self._keeper,
            room=self._room,
            attempt=attempt,
            interval=self._interval,
            max_wait=self._max_wait,
            on_lost=watchdog.notify,
            body=place or BodyPlace(),
        )
        acquisition = Acquisition(wants, terms)
        try:
            holds = await acquisition.acquire()
        except asyncio.CancelledError:
            error = attempt.cancelled()
            at_once = isinstance(error, LockNotAcquired)
            await settle(acquisition.abandon(keep_place=attempt.keeps_place(), at_once=at_once))
            raise error from None
        except GeneratorExit:  # a coroutine that is being closed must not wait for anything
            acquisition.abandon(keep_place=False)
            raise
        except BaseException as error:
            keep = isinstance(error, LockNotAcquired | LockStoreUnavailable | LockLost)
            # the error has to arrive before start-to-close, also when the store does not answer
            left = attempt.started + attempt.allowance.start_to_close - clock()
            at_once = isinstance(error, LockNotAcquired)
            await settle(
                acquisition.abandon(keep_place=keep, at_once=at_once), min(max(left, 0) / 2, CLEAN_UP_SECONDS)
            )
            acquisition.report()
            raise
        leases = tuple(hold.lease for hold in holds)
        token = held_leases.set(leases)
        try:
            with watchdog.watching(holds):
                result = await body(leases, watchdog)
        except asyncio.CancelledError:
            # from outside: the attempt is over, and what it lost does not matter any more
            await self._release(holds)
            raise
        except GeneratorExit:  # as above
            for hold in holds:
                self._keeper.release(hold)
            raise
        except BaseException as error:
            lost = _first_lost(leases)
            await self._release(holds)
            if lost is None or isinstance(error, LockLost) or not isinstance(error, Exception):
                raise
            raise _lost(lost) from error
        finally:
            held_leases.reset(token)
        lost = _first_lost(leases)
        gone = await self._release(holds)
        if lost := lost or gone:
            raise _lost(lost)
        return result

    async def _release(self, holds: Sequence[Hold]) -> Lease | None:
        """Give everything back. Returns a lease that turns out to have been gone before."""
        until, gone = clock() + CLEAN_UP_SECONDS, None
        for hold in holds:
            given_back = await self._keeper.give_back(hold, until - clock())
            if given_back is False:
                gone = hold.lease
            elif given_back:
                telemetry.released(hold.claim, hold.lease)
        return gone


def _first_lost(leases: Sequence[Lease]) -> Lease | None:
    return next((lease for lease in leases if lease.lost), None)


def _lost(lease: Lease) -> LockLost:
    return LockLost(f"lock {lease.label} was lost while its body ran: {lease.lost_because}")
