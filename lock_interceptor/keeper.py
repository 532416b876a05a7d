"""`LeaseKeeper`: has what is held renewed, and gives it back.

Giving back is tried once from the loop that asks for it, which is the shortest way. What is not answered, or
belongs to a loop that ends, is repeated from the thread that renews.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

from lock_interceptor import telemetry
from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.hold import Hold, margin
from lock_interceptor.lease import clock
from lock_interceptor.loop_thread import NoThreadError
from lock_interceptor.renewing import CLOSE_PATIENCE, MAX_RETRY_DELAY, Renewals
from lock_interceptor.store import Claim, LockStore
from lock_interceptor.watchdog import Watchdog

MIN_RETRY_DELAY = 0.05
CLEAN_UP_SECONDS = 1.0
"""Seconds for which the end of an attempt waits for what it gives back."""
LATE = 1.0
"""Seconds after which what may yet be granted, by a request that nobody waits for, is given back again; then
after twice as long, and so on for as long as a lease lasts."""

Send = Callable[[], Coroutine[Any, Any, bool | None]]


@dataclass(frozen=True, slots=True)
class _Leaving:
    """How something held, asked for or waited for is given back."""

    hold: Hold
    send: Send
    """Tells the store; True if the lock was held, None if the store does not say."""
    send_late: Send
    """Undoes an acquisition that the store executes after `send`, and touches no other attempt."""
    keeps_place: bool = False
    after_body: bool = False
    """A body ran under it, and has to know if it was lost meanwhile."""


class LeaseKeeper:
    """Keeps leases alive while they are held. Its methods are for the worker's loop."""

    def __init__(self, store: LockStore) -> None:
        self._store = store
        self._renewals = Renewals(store)
        # tasks of any loop
        self._leaving: set[asyncio.Task[Any]] = set()
        # in the thread only
        self._repeating: set[asyncio.Task[Any]] = set()
        self._hurry: asyncio.Event | None = None

    def keep(self, hold: Hold) -> None:
        """Renew this lease from now on.

        Raises:
            LockConfigurationError: there are no native threads in this process.
        """
        self._renewals.keep(hold)

    def watchdog(self) -> Watchdog:
        """What tells a body of this loop that a lease of it is lost."""
        return Watchdog(self._renewals)

    async def give_back(self, hold: Hold, seconds: float) -> bool | None:
        """Give back what a body is done with: as `release`, within a bound, and without a task for it.

        What is not answered by then goes on in the thread. A cancellation of the caller comes too late here:
        the body is done, and its end is what counts.
        """
        until, task = clock() + seconds, cast("asyncio.Task[Any]", asyncio.current_task())
        leaving = self._releasing(hold, after_body=True)
        self._leaving.add(task)
        self._let_go(hold)
        try:
            async with asyncio.timeout(max(seconds, 0)):
                was_held = await leaving.send()
        except (Exception, asyncio.CancelledError) as error:
            again = self._go_on(leaving, error)
            if await settle([again], until - clock()) or isinstance(error, asyncio.CancelledError):
                task.uncancel()
            return again.result() if again.done() and not again.cancelled() else None
        finally:
            self._leaving.discard(task)
        return self._left(leaving, was_held, sure=True)

    def release(self, hold: Hold) -> asyncio.Task[bool | None]:
        """Stop renewing and give back, for as long as the lease would last otherwise.

        The result is False if the lock turned out not to be held any more, and None if nobody can tell.
        """
        return self._start(self._leave(self._releasing(hold)))

    def step_back(self, hold: Hold, keep: timedelta) -> asyncio.Task[bool | None]:
        """Stop renewing, and give back with the old place in line."""
        return self._start(self._leave(self._parking(hold, keep)))

    async def close(self) -> None:
        """Finish what is being given back, within a bound, and end what was opened for it.

        What is still held goes on being renewed until its body ends.
        """
        here = asyncio.get_running_loop()
        if leaving := {task for task in list(self._leaving) if task.get_loop() is here}:
            await asyncio.wait(leaving, timeout=CLOSE_PATIENCE)
        await self._renewals.close(self._finish)

    def _releasing(self, hold: Hold, *, after_body: bool = False) -> _Leaving:
        # a grant has used up its place: one that is there by now belongs to the next attempt
        claim = _without_place(hold.claim) if hold.lease.token else hold.claim

        async def send() -> bool | None:
            return await self._store.release(claim)

        return _Leaving(hold, send, send, after_body=after_body)

    def _parking(self, hold: Hold, keep: timedelta) -> _Leaving:
        async def send(ticket: int) -> None:
            await self._store.park(hold.claim, ticket=ticket, keep=keep)

        return _Leaving(hold, lambda: send(hold.ticket), lambda: send(0), keeps_place=True)

    # -- in the worker's loop

    def _start(self, leave: Coroutine[Any, Any, bool | None]) -> asyncio.Task[bool | None]:
        """A task of its own survives the cancellation of whoever asked for it."""
        task = asyncio.get_running_loop().create_task(leave)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def _leave(self, leaving: _Leaving) -> bool | None:
        self._let_go(leaving.hold)
        try:
            was_held = await leaving.send()
        except BaseException as error:
            again = self._go_on(leaving, error)
            if not isinstance(error, Exception):
                raise  # this loop ends
            return await again
        return self._left(leaving, was_held, sure=True)

    def _go_on(self, leaving: _Leaving, error: BaseException) -> asyncio.Future[bool | None]:
        """Repeat it in the thread or, if there is none, here."""
        if isinstance(error, Exception):
            telemetry.request_failed(leaving.hold.claim)
        with contextlib.suppress(NoThreadError):
            return asyncio.wrap_future(self._renewals.submit(self._in_thread(leaving)))
        return self._start(self._repeat_until_left(leaving))

    def _let_go(self, hold: Hold) -> None:
        self._renewals.stop(hold)
        if hold.lease.lost:
            hold.lose(hold.lease.lost_because)

    # -- in the thread

    async def _in_thread(self, leaving: _Leaving) -> bool | None:
        return await self._tracked(self._repeat_until_left(leaving))

    def _tracked(self, work: Coroutine[Any, Any, bool | None]) -> asyncio.Task[bool | None]:
        task = asyncio.get_running_loop().create_task(work)
        self._repeating.add(task)
        task.add_done_callback(self._repeating.discard)
        return task

    async def _finish(self) -> None:
        if self._hurry is not None:
            self._hurry.set()
            self._hurry = None
        if self._repeating:
            await asyncio.wait(self._repeating, timeout=CLOSE_PATIENCE)

    async def _repeat_until_left(self, leaving: _Leaving) -> bool | None:
        hold = leaving.hold
        ends = max(hold.lease.remaining, 0) + margin(hold.length)  # at the server, too
        return self._left(leaving, await self._repeat(hold, leaving.send, ends), sure=False)

    def _left(self, leaving: _Leaving, was_held: bool | None, *, sure: bool) -> bool | None:
        """What giving back has come to.

        Not `sure` after an answer that got lost: "it held nothing" may be our own doing then.
        """
        hold = leaving.hold
        if leaving.after_body and was_held is False and sure:
            hold.lose("the store no longer knew of it when it was given back", gone=True)
        hold.over()
        if hold.echo_possible or not hold.lease.token:
            # without a thread its slot is free after one lease, which is when nobody would ask any more
            with contextlib.suppress(NoThreadError):
                self._renewals.call_soon(self._make_sure_later, leaving)
        if was_held is None and not leaving.keeps_place:
            telemetry.release_failed(hold.claim, hold.lease)
        return was_held if was_held or sure else None

    def _make_sure_later(self, leaving: _Leaving) -> None:
        if self._hurry is None:
            self._hurry = asyncio.Event()
        self._tracked(self._make_sure(leaving, self._hurry))

    async def _make_sure(self, leaving: _Leaving, hurry: asyncio.Event) -> None:
        """Give back again: a request that was not answered may yet be executed, after the release."""
        began, delay, length = clock(), LATE, leaving.hold.length
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await hurry.wait()
            await self._repeat(leaving.hold, leaving.send_late, length)
            delay *= 2
            if hurry.is_set() or clock() - began >= length:
                return

    async def _repeat(self, hold: Hold, send: Send, seconds: float) -> bool | None:
        """Repeat until answered, and at least once."""
        give_up, delay = clock() + seconds, MIN_RETRY_DELAY
        while True:
            try:
                return await send()
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                telemetry.request_failed(hold.claim)
                left = give_up - clock()
                if isinstance(error, LockConfigurationError) or left < MIN_RETRY_DELAY:
                    telemetry.clean_up_ended(error)
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


def _without_place(claim: Claim) -> Claim:
    return replace(claim, waiter=claim.owner)
