"""`LeaseKeeper`: has what is held renewed, and gives it back.

Giving back is tried once from the loop that asks for it, which is the shortest way. What is not answered, or
belongs to a loop that ends, is repeated from the thread that renews.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, cast

import structlog

from lock_interceptor import metrics
from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.hold import Hold, margin
from lock_interceptor.lease import clock
from lock_interceptor.renewing import CLOSE_PATIENCE, MAX_RETRY_DELAY, Renewals
from lock_interceptor.store import Claim, LockStore

log = structlog.get_logger("lock_interceptor")
Result = TypeVar("Result")

MIN_RETRY_DELAY = 0.05
CLEAN_UP_SECONDS = 1.0
"""Seconds for which the end of an attempt waits for what it gives back."""
LATE = 1.0
"""Seconds after which what may yet be granted, by a request that nobody waits for, is given back again."""


class LeaseKeeper:
    """Keeps leases alive while they are held. Its methods are for the worker's loop."""

    def __init__(self, store: LockStore) -> None:
        self._store = store
        self._renewals = Renewals(store)
        # tasks of any loop
        self._leaving: set[asyncio.Task[Any]] = set()
        # in the thread only
        self._repeating: set[asyncio.Task[Any]] = set()
        self._late: dict[Claim, tuple[Hold, asyncio.TimerHandle]] = {}

    def keep(self, hold: Hold) -> None:
        """Renew this lease from now on."""
        self._renewals.keep(hold)

    async def give_back(self, hold: Hold, seconds: float) -> bool | None:
        """Give back what a body is done with: as `release`, within a bound, and without a task for it.

        What is not answered by then goes on in the thread. A cancellation of the caller comes too late here:
        the body is done, and its end is what counts.
        """
        until, task = clock() + seconds, cast("asyncio.Task[Any]", asyncio.current_task())
        self._leaving.add(task)
        self._let_go(hold)
        try:
            async with asyncio.timeout(max(seconds, 0)):
                was_held = await self._store.release(_to_release(hold))
        except (Exception, asyncio.CancelledError) as error:
            again = asyncio.wrap_future(self._leave_to_thread(hold, error, self._release_repeatedly(hold)))
            if await settle([again], until - clock()) or isinstance(error, asyncio.CancelledError):
                task.uncancel()
            return again.result() if again.done() else None
        finally:
            self._leaving.discard(task)
        return self._released(hold, was_held, sure=True)

    def release(self, hold: Hold) -> asyncio.Task[bool | None]:
        """Stop renewing and give back, for as long as the lease would last otherwise.

        The result is False if the lock turned out not to be held any more, and None if nobody can tell.
        """
        return self._start(self._release(hold))

    def step_back(self, hold: Hold, keep: timedelta) -> asyncio.Task[None]:
        """Stop renewing, and give back with the old place in line."""
        return self._start(self._step_back(hold, keep))

    async def close(self) -> None:
        """Finish what is being given back, within a bound, and end what was opened for it."""
        here = asyncio.get_running_loop()
        if leaving := {task for task in list(self._leaving) if task.get_loop() is here}:
            await asyncio.wait(leaving, timeout=CLOSE_PATIENCE)
        await self._renewals.close(self._finish)

    # -- in the worker's loop

    def _start(self, leave: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """A task of its own survives the cancellation of whoever asked for it."""
        task = asyncio.get_running_loop().create_task(leave)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def _release(self, hold: Hold) -> bool | None:
        self._let_go(hold)
        try:
            was_held = await self._store.release(_to_release(hold))
        except BaseException as error:
            return await self._go_on(hold, error, self._release_repeatedly(hold))
        return self._released(hold, was_held, sure=True)

    async def _step_back(self, hold: Hold, keep: timedelta) -> None:
        self._renewals.stop(hold)
        try:
            await self._store.park(hold.claim, ticket=hold.ticket, keep=keep)
        except BaseException as error:
            await self._go_on(hold, error, self._park_repeatedly(hold, keep))
        else:
            self._parked(hold)

    async def _go_on(self, hold: Hold, error: BaseException, repeat: Coroutine[Any, Any, Result]) -> Result:
        again = self._leave_to_thread(hold, error, repeat)
        if not isinstance(error, Exception):
            raise error  # this loop ends
        return await asyncio.wrap_future(again)

    def _leave_to_thread(
        self, hold: Hold, error: BaseException, repeat: Coroutine[Any, Any, Result]
    ) -> concurrent.futures.Future[Result]:
        if isinstance(error, Exception):
            hold.claim.metrics.count(metrics.STORE_ERRORS)
        return self._renewals.submit(self._tracked(repeat))

    def _let_go(self, hold: Hold) -> None:
        self._renewals.stop(hold)
        if hold.lease.lost:
            hold.lost()

    # -- in the thread

    async def _tracked(self, work: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.ensure_future(work)
        self._repeating.add(task)
        try:
            return await task
        finally:
            self._repeating.discard(task)

    async def _finish(self) -> None:
        for claim in list(self._late):
            self._make_sure(claim)
        if self._repeating:
            await asyncio.wait(self._repeating, timeout=CLOSE_PATIENCE)

    async def _release_repeatedly(self, hold: Hold) -> bool | None:
        was_held = await self._repeat(hold, lambda: self._store.release(_to_release(hold)), _ends(hold))
        return self._released(hold, was_held, sure=False)

    def _released(self, hold: Hold, was_held: bool | None, *, sure: bool) -> bool | None:
        """What giving back has come to.

        Not `sure` after an answer that got lost: "it held nothing" may be our own doing then.
        """
        if was_held is False and sure:
            hold.lost(gone=True)
        hold.over()
        if was_held is None:
            hold.claim.metrics.count(metrics.RELEASE_FAILED)
            log.warning("lock.release_failed", **hold.facts(), freed_in="at the end of its lease")
        if hold.echo_possible or not hold.lease.token:
            self._renewals.call_soon(self._make_sure_later, hold, _to_release(hold))
        return was_held if was_held or sure else None

    def _make_sure_later(self, hold: Hold, claim: Claim) -> None:
        timer = asyncio.get_running_loop().call_later(LATE, self._make_sure, claim)
        self._late[claim] = hold, timer

    def _make_sure(self, claim: Claim) -> None:
        """Give back again: a request that was cut off may yet be executed, after the release."""
        hold, timer = self._late.pop(claim)
        timer.cancel()
        again = self._repeat(hold, lambda: self._store.release(claim), hold.length)
        task = asyncio.get_running_loop().create_task(again)
        self._repeating.add(task)
        task.add_done_callback(self._repeating.discard)

    async def _park_repeatedly(self, hold: Hold, keep: timedelta) -> None:
        await self._repeat(
            hold, lambda: self._store.park(hold.claim, ticket=hold.ticket, keep=keep), _ends(hold)
        )
        self._parked(hold)

    def _parked(self, hold: Hold) -> None:
        hold.over()
        if hold.echo_possible:
            self._renewals.call_soon(self._make_sure_later, hold, _without_place(hold.claim))

    async def _repeat(
        self, hold: Hold, call: Callable[[], Coroutine[Any, Any, Result]], seconds: float
    ) -> Result | None:
        """Repeat until answered, and at least once."""
        give_up, delay = clock() + seconds, MIN_RETRY_DELAY
        while True:
            try:
                return await call()
            except Exception as error:
                hold.claim.metrics.count(metrics.STORE_ERRORS)
                left = give_up - clock()
                if isinstance(error, LockConfigurationError) or left < MIN_RETRY_DELAY:
                    log.debug("lock.store_error", error=str(error))
                    return None
            # more often again towards the end: it may be the last chance to free the slot early
            await asyncio.sleep(min(delay, max(left / 2, MIN_RETRY_DELAY)))
            delay = min(delay * 2, MAX_RETRY_DELAY)


async def settle(tasks: Sequence[asyncio.Future[Any]], seconds: float = CLEAN_UP_SECONDS) -> bool:
    """Wait for clean-ups within a bound, and through cancellation. Returns whether there was one.

    What is not done by then goes on in the background.
    """
    pending = set(tasks)
    until, cancelled = clock() + seconds, False
    while pending and (left := until - clock()) > 0:
        try:
            _, pending = await asyncio.wait(pending, timeout=left)
        except asyncio.CancelledError:
            cancelled = True
    return cancelled


def _to_release(hold: Hold) -> Claim:
    """A grant has used up its place: one that is there by now belongs to the next attempt."""
    return _without_place(hold.claim) if hold.lease.token else hold.claim


def _without_place(claim: Claim) -> Claim:
    return replace(claim, waiter=claim.owner)


def _ends(hold: Hold) -> float:
    """Seconds until the lease is over at the server, too."""
    return max(hold.lease.remaining, 0) + margin(hold.length)
