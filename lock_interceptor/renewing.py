"""`Renewals`: renews what is held, from a thread of its own.

A body may block the worker's event loop for longer than a lease, so renewing has a loop and connections of
its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import math
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import structlog

from lock_interceptor import metrics
from lock_interceptor.hold import Hold, margin
from lock_interceptor.lease import clock
from lock_interceptor.store import LockStore

log = structlog.get_logger("lock_interceptor")
Result = TypeVar("Result")

MAX_RETRY_DELAY = 1.0
CLOSE_PATIENCE = 5.0


class Renewals:
    """The thread, and the leases that it renews. Its methods may be called from any thread."""

    def __init__(self, store: LockStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        # with the lock only
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._fresh: dict[Hold, contextvars.Context] = {}
        self._pick_up_at = math.inf
        self._tasks: dict[Hold, asyncio.Task[None]] = {}

    def keep(self, hold: Hold) -> None:
        """Renew this lease from now on.

        Most are given back long before a renewal is due, so the thread looks for new ones only now and then:
        to wake it up for each would cost more than all the rest.
        """
        hold.begin()
        at = clock() + min(hold.length / 10, _due(hold) / 2)
        with self._lock:
            # its renewals have the context of the attempt, and so its span
            self._fresh[hold] = contextvars.copy_context()
            if at >= self._pick_up_at:
                return
            self._pick_up_at = at
        self.call_soon(self._pick_up, at)

    def stop(self, hold: Hold) -> bool:
        """Stop renewing. Whoever does it is the one to say how it ended, and is told so."""
        with self._lock:
            fresh, task, loop = self._fresh.pop(hold, None), self._tasks.pop(hold, None), self._loop
        if task is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and its tasks with it
                loop.call_soon_threadsafe(task.cancel)
        return fresh is not None or task is not None

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        """Call it in the thread."""
        self._running_loop().call_soon_threadsafe(call, *args)

    def submit(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Do it in the thread."""
        return asyncio.run_coroutine_threadsafe(work, self._running_loop())

    async def close(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Stop all renewals, finish what is left, and stop the thread until it is needed again."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            self._fresh.clear()
            self._pick_up_at = math.inf
        if loop is None or thread is None:
            return
        ended = asyncio.run_coroutine_threadsafe(self._end(finish), loop)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(ended), CLOSE_PATIENCE * 2)
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.get_running_loop().run_in_executor(None, thread.join, CLOSE_PATIENCE)

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

    # -- in the thread

    async def _end(self, finish: Callable[[], Awaitable[None]]) -> None:
        with self._lock:
            tasks = list(self._tasks.values())
            self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await finish()
        await self._store.close()

    def _pick_up(self, at: float) -> None:
        """Begin at this time to renew what is new by then."""
        loop = asyncio.get_running_loop()
        if (delay := at - clock()) > 0:
            loop.call_later(delay, self._pick_up, at)
            return
        with self._lock:
            self._pick_up_at = math.inf
            while self._fresh:
                hold, context = self._fresh.popitem()
                self._tasks[hold] = loop.create_task(self._renew(hold), context=context)

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
        if not self.stop(hold):
            return  # it is being given back
        hold.lease.lose(reason)
        log.error("lock.lost", **hold.facts(), reason=reason)
        hold.lost(gone=gone)
        hold.on_lost()


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
