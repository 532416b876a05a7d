"""Runs the body of a locked activity, and stops it when its lock is lost, as far as its kind allows.

async     is cancelled
threaded  `LockLost` is raised at its next heartbeat; a running thread is never abandoned
process   nothing reaches it from here: it has the token, and `lost` of its lease follows the worker's
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, cast

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, ExecuteActivityInput

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.lease import Lease, held_leases
from lock_interceptor.watchdog import Watchdog
from lock_interceptor.worker.attempt import ActivityAttempt
from lock_interceptor.worker.shown_leases import ShownLeases

Kind = Literal["async", "thread", "process"]


def kind_of(input: ExecuteActivityInput) -> Kind:
    """How the worker will run this activity."""
    if input.executor is None:
        return "async"
    return "thread" if isinstance(input.executor, ThreadPoolExecutor) else "process"


async def run_body(
    next: ActivityInboundInterceptor,
    input: ExecuteActivityInput,
    leases: tuple[Lease, ...],
    watchdog: Watchdog,
    attempt: ActivityAttempt,
) -> Any:
    """Run the activity to its end.

    Raises:
        LockConfigurationError: it wants to complete asynchronously, so its end cannot be seen.
        BaseException: whatever the activity raises.
    """
    run = {"async": _run_async, "thread": _run_in_thread, "process": _run_in_process}[kind_of(input)]
    try:
        return await run(next, input, leases, watchdog, attempt)
    except BaseException as error:
        if isinstance(error, _COMPLETE_ASYNC):
            raise LockConfigurationError(
                "a locked activity cannot complete asynchronously: the lock would be given back before the "
                "work is done. Let it return its result, or do without @needs_lock"
            ) from None
        raise


async def _run_async(
    next: ActivityInboundInterceptor,
    input: ExecuteActivityInput,
    leases: tuple[Lease, ...],
    watchdog: Watchdog,
    attempt: ActivityAttempt,  # noqa: ARG001 - one signature for all kinds
) -> Any:
    """Run it in the attempt's own task, as without a lock: what it raises or sets in its context is the same.

    A loss cancels that task. As with `asyncio.timeout`, counting tells our cancellation from one that comes
    from outside.
    """
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    before, interrupted = task.cancelling(), False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        task.cancel()

    try:
        with watchdog.interrupting(interrupt):
            return await next.execute_activity(input)
    except asyncio.CancelledError:
        if interrupted and task.cancelling() - 1 <= before:
            for lease in leases:
                lease.raise_if_lost()
        raise
    finally:
        if interrupted:
            task.uncancel()


async def _run_in_thread(
    next: ActivityInboundInterceptor,
    input: ExecuteActivityInput,
    leases: tuple[Lease, ...],
    watchdog: Watchdog,  # noqa: ARG001 - its heartbeat and `lost` read the clock themselves
    attempt: ActivityAttempt,
) -> Any:
    begun = False

    @functools.wraps(input.fn)
    def begin(*args: Any) -> Any:
        nonlocal begun
        begun = True
        for lease in leases:
            lease.raise_if_lost()
        return input.fn(*args)

    with attempt.heartbeating(lambda: begun):
        return await next.execute_activity(replace(input, fn=begin))


async def _run_in_process(
    next: ActivityInboundInterceptor,
    input: ExecuteActivityInput,
    leases: tuple[Lease, ...],
    watchdog: Watchdog,  # noqa: ARG001 - nothing can be raised there
    attempt: ActivityAttempt,
) -> Any:
    with ShownLeases(leases) as shown, attempt.heartbeating(shown.seen):
        return await next.execute_activity(carrying(input, leases, shown.path))


def unlocked_lease(name: str, key: str | None) -> Lease:
    """What `current_lease` gives while locking is disabled: it never ends, and protects nothing."""
    return Lease(name, time.time_ns() // 1000, 0, key=key, expires=math.inf, deadline=math.inf)


def carrying(
    input: ExecuteActivityInput, leases: tuple[Lease, ...], shown: str | None = None
) -> ExecuteActivityInput:
    """The same call, with its leases where a body in another process can see them."""
    if kind_of(input) != "process":
        return input
    carried = tuple(lease.for_other_process() for lease in leases)
    return replace(input, fn=CarriesLeases(input.fn, carried, shown))


@dataclass(frozen=True)
class CarriesLeases:
    """A process pool does not inherit context variables, so the function brings the leases along."""

    fn: Callable[..., Any]
    leases: tuple[Lease, ...]
    shown: str | None
    """Where the worker shows how long they last; None if they do not end."""

    def __call__(self, *args: Any) -> Any:
        """Run the function with the leases in place."""
        token = held_leases.set(self.leases)
        try:
            if self.shown is None:
                return self.fn(*args)
            with ShownLeases.watched(self.shown, self.leases):
                for lease in self.leases:
                    lease.raise_if_lost()
                return self.fn(*args)
        finally:
            held_leases.reset(token)


class LossRaisingOutbound(ActivityOutboundInterceptor):
    """Makes the next heartbeat of an activity in this process raise when its lock is lost."""

    def __init__(self, next: ActivityOutboundInterceptor) -> None:
        super().__init__(next)
        self.leases: tuple[Lease, ...] = ()
        """Set while the body runs; not for a process, where an error would stop the SDK's heartbeats."""

    def heartbeat(self, *details: Any) -> None:
        """See base class."""
        super().heartbeat(*details)
        for lease in self.leases:
            lease.raise_if_lost()


def _complete_async_error() -> type[BaseException]:
    """The SDK's signal for asynchronous completion has no public name, but a public function raises it."""

    def signal() -> NoReturn:
        activity.raise_complete_async()

    try:
        signal()
    except BaseException as error:
        return type(error)


_COMPLETE_ASYNC = _complete_async_error()
