"""How an attempt pauses in the worker: until it is called, but not past its own end. Knows no store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from lock_interceptor.errors import LockNotAcquired
from lock_interceptor.lease import clock
from lock_interceptor.store import LockId
from lock_interceptor.terms import Attempt, Terms
from lock_interceptor.waiting import AT_ONCE

NO_PLACE = "this worker has no place free for the activity's body"


async def sleep(wake: asyncio.Event, until: float, attempt: Attempt) -> None:
    """Until a call or that time; the attempt heartbeats meanwhile.

    Raises:
        BaseException: whatever `Attempt.check` raises.
    """
    while not wake.is_set() and (left := until - clock()) > 0:
        attempt.check()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(left, attempt.check_every)):
                await wake.wait()
    wake.clear()
    attempt.check()


async def until_place(terms: Terms, lock: LockId, until: float, *, or_full: bool = False) -> None:
    """Wait for a place for the body without standing in line for the lock.

    With `or_full` only while others ask, and not for bodies to end.

    Raises:
        LockNotAcquired: there was none until then, which says nothing of the lock.
        BaseException: whatever `Attempt.check` raises.
    """
    body = terms.body
    if body.take():
        return
    wake = asyncio.Event()

    async def pause() -> None:
        if clock() >= until:
            raise LockNotAcquired(f"lock {lock}: {NO_PLACE}", AT_ONCE)
        await sleep(wake, until, terms.attempt)

    # to wait for those that ask takes milliseconds, and needs no seat
    seat = None if or_full else terms.room.enter(0.0, stays=True, body=body)
    try:
        with body.waiting(setting(wake)):
            async with terms.attempt.watch(wake.set):
                await body.until_taken(pause, or_full=or_full)
    finally:
        if seat is not None:
            terms.room.leave(seat)


def setting(wake: asyncio.Event) -> Callable[[], None]:
    """What sets the event from any thread."""
    loop = asyncio.get_running_loop()

    def call() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the wait with it
            loop.call_soon_threadsafe(wake.set)

    return call
