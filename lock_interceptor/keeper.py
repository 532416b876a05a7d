"""`LeaseKeeper`: renews what is held, and gives it back, from a thread of its own.

A body may block the worker's event loop for longer than a lease. So renewing has a loop and connections of
its own, and giving back goes the same way: it survives the cancellation of whoever asked for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import structlog

from lock_interceptor import metrics
from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.hold import Hold, margin
from lock_interceptor.lease import clock
from lock_interceptor.store import LockStore

log = structlog.get_logger("lock_interceptor")
Result = TypeVar("Result")

MIN_RETRY_DELAY = 0.05
MAX_RETRY_DELAY = 1.0
CLOSE_PATIENCE = 5.0
LATE = 1.0
"""Seconds after which what was given up without a grant is given back once more."""


class LeaseKeeper:
    """Keeps leases alive while they are held. Its methods are for the worker's loop."""

    def __init__(self, store: LockStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # everything below is touched in the keeper's loop only
        self._renewals: dict[Hold, asyncio.Task[None]] = {}
        self._releases: set[asyncio.Task[Any]] = set()
        self._late: dict[Hold, asyncio.TimerHandle] = {}

    def keep(self, hold: Hold) -> None:
        """Renew this lease from now on."""
        self._running_loop().call_soon_threadsafe(self._start_renewing, hold)

    def release(self, hold: Hold) -> concurrent.futures.Future[bool | None]:
        """Stop renewing and give back, for as long as the lease would last otherwise.

        The result is False if the lock turned out not to be held any more, and None if nobody can tell.
        """
        return self._submit(self._release(hold))

    def step_back(self, hold: Hold, keep: timedelta) -> concurrent.futures.Future[None]:
        """Stop renewing, and give back with the old place in line."""
        return self._submit(self._step_back(hold, keep))

    async def close(self) -> None:
        """Finish what is being given back, within a bound, and stop the thread until it is needed again."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        finished = asyncio.run_coroutine_threadsafe(self._finish(), loop)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(finished), CLOSE_PATIENCE * 2)
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.get_running_loop().run_in_executor(None, thread.join, CLOSE_PATIENCE)

    # -- in the worker's loop

    def _submit(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        return asyncio.run_coroutine_threadsafe(self._tracked(work), self._running_loop())

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # a daemon: a process that ends leaves the rest to the lease
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="lock_interceptor.keeper", daemon=True
                )
                self._thread.start()
            return self._loop

    # -- in the keeper's loop

    async def _tracked(self, work: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.ensure_future(work)
        self._releases.add(task)
        try:
            return await task
        finally:
            self._releases.discard(task)

    async def _finish(self) -> None:
        renewals = list(self._renewals.values())
        for renewal in renewals:
            renewal.cancel()
        await asyncio.gather(*renewals, return_exceptions=True)
        for hold in list(self._late):
            self._make_sure(hold)
        if self._releases:
            await asyncio.wait(self._releases, timeout=CLOSE_PATIENCE)
        await self._store.close()

    def _start_renewing(self, hold: Hold) -> None:
        hold.begin()
        # the task has the context of the attempt, and so its span
        task = asyncio.get_running_loop().create_task(self._renew(hold))
        self._renewals[hold] = task
        task.add_done_callback(lambda _: self._renewals.pop(hold, None))

    def _stop_renewing(self, hold: Hold) -> None:
        if task := self._renewals.pop(hold, None):
            task.cancel()

    async def _renew(self, hold: Hold) -> None:
        """Renew at a third of the lease; after a failure often, until the lease is over."""
        lease, interval, doubtful = hold.lease, hold.length / 3, False
        delay = _due(hold)
        while True:
            await asyncio.sleep(min(in_bunches(delay, interval), max(lease.remaining, 0)))
            if lease.lost:
                return self._lost(hold, lease.lost_because)
            length = min(hold.length, lease.until_deadline)
            if length - margin(length) <= lease.remaining + 0.01:
                delay = lease.remaining  # the deadline allows no more
                continue
            sent = clock()
            try:
                async with asyncio.timeout(lease.remaining):
                    alive = await self._store.renew(hold.claim, lease=timedelta(seconds=length))
            except Exception as error:
                # not an answer, so not a loss: the lease lasts until its end
                hold.claim.metrics.count(metrics.STORE_ERRORS)
                if not doubtful:
                    hold.claim.metrics.count(metrics.DOUBTFUL)
                    log.warning("lock.doubtful", **hold.facts(), lease_left=lease.remaining, error=str(error))
                doubtful, delay = True, min(interval, MAX_RETRY_DELAY, max(lease.remaining / 4, 0.05))
                continue
            if not alive:
                return self._lost(
                    hold,
                    "the store no longer knows of it (expired, deleted or lost with its server)",
                    gone=True,
                )
            final = length < hold.length
            if not lease.extend(sent + length - margin(length), final=final):
                return self._lost(hold, lease.lost_because)
            if doubtful:
                log.info("lock.recovered", **hold.facts())
            doubtful, delay = False, _due(hold)

    def _lost(self, hold: Hold, reason: str, *, gone: bool = False) -> None:
        hold.lease.lose(reason)
        log.error("lock.lost", **hold.facts(), reason=reason)
        hold.lost(gone=gone)
        hold.on_lost()

    async def _release(self, hold: Hold) -> bool | None:
        self._stop_renewing(hold)
        if hold.lease.lost:
            hold.lost()
        ends = max(hold.lease.remaining, 0) + margin(hold.length)
        was_held, sure = await self._repeat(hold, lambda: self._store.release(hold.claim), ends)
        if was_held is False and sure:
            hold.lost(gone=True)
        hold.over()
        if was_held is None:
            hold.claim.metrics.count(metrics.RELEASE_FAILED)
            log.warning("lock.release_failed", **hold.facts(), freed_in="at the end of its lease")
        if not hold.lease.token:
            self._late[hold] = asyncio.get_running_loop().call_later(LATE, self._make_sure, hold)
        # after an answer that got lost, "it held nothing" may be our own doing
        return was_held if was_held or sure else None

    def _make_sure(self, hold: Hold) -> None:
        """Give back again: the last request may have been cut off, and yet be executed after the release."""
        self._late.pop(hold).cancel()
        again = self._repeat(hold, lambda: self._store.release(hold.claim), hold.length)
        task = asyncio.get_running_loop().create_task(again)
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _step_back(self, hold: Hold, keep: timedelta) -> None:
        self._stop_renewing(hold)
        ends = max(hold.lease.remaining, 0) + margin(hold.length)
        await self._repeat(hold, lambda: self._store.park(hold.claim, ticket=hold.ticket, keep=keep), ends)
        hold.over()

    async def _repeat(
        self, hold: Hold, call: Callable[[], Coroutine[Any, Any, Result]], seconds: float
    ) -> tuple[Result | None, bool]:
        """Repeat until answered, and at least once. Also tells whether the first answer was the only one."""
        give_up, delay, sure = clock() + seconds, MIN_RETRY_DELAY, True
        while True:
            try:
                return await call(), sure
            except Exception as error:
                sure = False
                hold.claim.metrics.count(metrics.STORE_ERRORS)
                left = give_up - clock()
                if isinstance(error, LockConfigurationError) or left < MIN_RETRY_DELAY:
                    log.debug("lock.store_error", error=str(error))
                    return None, False
            # more often again towards the end: it may be the last chance to free the slot early
            await asyncio.sleep(min(delay, max(left / 2, MIN_RETRY_DELAY)))
            delay = min(delay * 2, MAX_RETRY_DELAY)


def _due(hold: Hold) -> float:
    """Seconds until a third of the lease is over: it began when it was asked for, not with a late answer."""
    return max(hold.lease.remaining + margin(hold.length) - hold.length * 2 / 3, 0)


def in_bunches(delay: float, interval: float) -> float:
    """A delay that differs from lock to lock, and still lets renewals that are due about then go together.

    Waking up for each one would cost twice as much as renewing it.
    """
    due, step = clock() + delay * random.uniform(0.9, 1.1), interval / 100  # noqa: S311 - spreads load
    return due + -due % step - clock()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
