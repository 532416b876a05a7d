"""`Renewals`: renews what is held, from a thread of its own.

A body may block the worker's event loop for longer than a lease, so renewing has a loop and connections of
its own. Nothing else depends on this thread: should it not start, die or hang, leases end, and each body is
told by a timer of its own (`lock_interceptor.watchdog`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import math
import os
import random
import threading
import weakref
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from lock_interceptor import telemetry
from lock_interceptor.hold import Hold, margin
from lock_interceptor.lease import clock
from lock_interceptor.loop_thread import LoopThread, NoThreadError
from lock_interceptor.store import LockStore

Result = TypeVar("Result")
Finish = Callable[[], Coroutine[Any, Any, None]]

# not the functions of `random`: their state is the user's, and here is another thread
_random = random.Random()  # noqa: S311 - spreads load, hides nothing

MAX_RETRY_DELAY = 1.0
CLOSE_PATIENCE = 5.0


class Renewals:
    """The thread, and the leases that it renews. Its methods may be called from any thread."""

    def __init__(self, store: LockStore) -> None:
        self._store = store
        self._start_afresh()
        _all_renewals.add(self)

    def _start_afresh(self) -> None:
        """Also in the child of a fork: what is held, the thread and the mutex belong to the parent."""
        self._mutex = threading.Lock()
        # with the mutex only
        self._thread: LoopThread | None = None
        self._failing = False
        self._fresh: dict[Hold, contextvars.Context] = {}
        self._pick_up_at = math.inf
        self._tasks: dict[Hold, asyncio.Task[None]] = {}
        self._finish: Finish | None = None
        """What to do when nothing is held any more, since `close` was called."""

    def keep(self, hold: Hold) -> None:
        """Renew this lease from now on.

        Most are given back long before a renewal is due, so the thread looks for new ones only now and then:
        to wake it up for each would cost more than all the rest.

        Raises:
            LockConfigurationError: there are no native threads in this process.
        """
        hold.begin()
        with self._mutex:
            # its renewals have the context of the attempt, and so its span
            self._fresh[hold] = contextvars.copy_context()
            self._finish = None
        self._arrange_pick_up(clock() + min(hold.length / 10, _due(hold) / 2))

    def attend(self) -> None:
        """Start the thread anew if there is something to renew and the thread is not there."""
        with self._mutex:
            dead = self._thread is None or not self._thread.is_alive()
            if dead:
                self._thread, self._pick_up_at = None, math.inf
                for hold in self._tasks:
                    self._fresh[hold] = contextvars.copy_context()
                self._tasks.clear()
            missed = dead and self._fresh
        if missed:
            self._arrange_pick_up(clock())

    def stop(self, hold: Hold) -> bool:
        """Stop renewing. Whoever does it is the one to say how it ended, and is told so."""
        with self._mutex:
            fresh, task, thread = self._fresh.pop(hold, None), self._tasks.pop(hold, None), self._thread
            finish = None if self._fresh or self._tasks else self._finish
            if finish is not None:
                self._thread = self._finish = None
        if thread is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and its tasks with it
                if task is not None:
                    thread.loop.call_soon_threadsafe(task.cancel)
                if finish is not None:
                    thread.submit(self._end(thread, finish))
        return fresh is not None or task is not None

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        """Call it in the thread.

        Raises:
            NoThreadError: there is none.
        """
        with self._mutex:
            self._running().loop.call_soon_threadsafe(call, *args)

    def submit(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Do it in the thread.

        Raises:
            NoThreadError: there is none, and nothing is done.
        """
        try:
            with self._mutex:
                return self._running().submit(work)
        except NoThreadError:
            work.close()
            raise

    async def close(self, finish: Finish) -> None:
        """Finish what is left, and end the thread until it is needed again.

        What is still held goes on being renewed, since its body runs; the thread ends with the last of it.

        Args:
            finish: called in the thread before it ends.
        """
        with self._mutex:
            thread, held = self._thread, bool(self._fresh or self._tasks)
            if held:
                self._finish = finish
            else:
                self._thread, self._pick_up_at = None, math.inf
        if thread is None or not thread.is_alive():
            return
        done = thread.submit(finish() if held else self._end(thread, finish))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(done), CLOSE_PATIENCE * 2)
        if not held:
            await thread.join(CLOSE_PATIENCE)

    def _running(self) -> LoopThread:
        """The thread, which is started if need be. With the mutex."""
        if self._thread is None or not self._thread.is_alive():
            self._thread, self._pick_up_at = None, math.inf
            self._thread = LoopThread.start("lock_interceptor.keeper")
        return self._thread

    def _arrange_pick_up(self, at: float) -> None:
        """Have the thread look for new leases at this time. If it does not start, a watchdog tries again."""
        try:
            with self._mutex:
                if at < self._pick_up_at:
                    self._running().loop.call_soon_threadsafe(self._pick_up, at)
                    self._pick_up_at = at
                    self._failing = False
        except NoThreadError as error:
            first, self._failing = not self._failing, True
            if first:  # of many tries in a row
                telemetry.renewing_failed(error.__cause__ or error)

    # -- in the thread

    async def _end(self, thread: LoopThread, finish: Finish) -> None:
        try:
            await finish()
            await self._store.close()
        finally:
            thread.end()

    def _pick_up(self, at: float) -> None:
        """Begin at this time to renew what is new by then."""
        loop = asyncio.get_running_loop()
        if (delay := at - clock()) > 0:
            loop.call_later(delay, self._pick_up, at)
            return
        with self._mutex:
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
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                # not an answer, so not a loss: the lease lasts until its end
                telemetry.request_failed(hold.claim)
                if not doubtful:
                    telemetry.doubtful(hold.claim, lease, error)
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
                telemetry.recovered(hold.claim, lease)
            doubtful, delay = False, _due(hold)

    def _lost(self, hold: Hold, reason: str, *, gone: bool = False) -> None:
        if self.stop(hold):  # else it is being given back
            hold.lose(reason, gone=gone)


_all_renewals: weakref.WeakSet[Renewals] = weakref.WeakSet()


def _after_fork() -> None:
    for renewals in list(_all_renewals):
        renewals._start_afresh()  # noqa: SLF001 - of this module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _due(hold: Hold) -> float:
    """Seconds until a third of the lease is over: it began when it was asked for, not with a late answer."""
    return max(hold.lease.remaining + margin(hold.length) - hold.length * 2 / 3, 0)


def in_bunches(delay: float, interval: float) -> float:
    """A delay that differs from lock to lock, and still lets renewals that are due about then go together.

    Waking up for each one would cost twice as much as renewing it.
    """
    due, step = clock() + delay * _random.uniform(0.9, 1.1), interval / 100
    return due + -due % step - clock()
