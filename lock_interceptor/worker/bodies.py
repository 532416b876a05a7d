"""Runs the body of a locked activity, and stops it when its lock is lost, as far as its kind allows.

async     is cancelled
threaded  `LockLost` is raised at its next heartbeat; a running thread is never abandoned
process   nothing reaches it from here: it has the token, and `lost` once the deadline has passed
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, ExecuteActivityInput

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.guard import Loss
from lock_interceptor.lease import Lease, held_leases

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
    loss: Loss,
) -> Any:
    """Run the activity to its end.

    Raises:
        LockConfigurationError: it wants to complete asynchronously, so its end cannot be seen.
        BaseException: whatever the activity raises.
    """
    try:
        if kind_of(input) == "async":
            return await _run_cancellable(next, input, leases, loss)
        return await next.execute_activity(carrying(input, leases))
    except BaseException as error:
        if isinstance(error, _COMPLETE_ASYNC):
            raise LockConfigurationError(
                "a locked activity cannot complete asynchronously: the lock would be given back before the "
                "work is done. Let it return its result, or do without @needs_lock"
            ) from None
        raise


async def _run_cancellable(
    next: ActivityInboundInterceptor,
    input: ExecuteActivityInput,
    leases: tuple[Lease, ...],
    loss: Loss,
) -> Any:
    # a task of its own, so that its cancellation can be told from one that comes from outside
    body = asyncio.ensure_future(next.execute_activity(input))
    loss.react(body.cancel)
    try:
        return await body
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            for lease in leases:
                lease.raise_if_lost()
        raise


def unlocked_lease(name: str, key: str | None) -> Lease:
    """What `current_lease` gives while locking is disabled: it never ends, and protects nothing."""
    return Lease(name, time.time_ns() // 1000, 0, key=key, expires=math.inf, deadline=math.inf)


def carrying(input: ExecuteActivityInput, leases: tuple[Lease, ...]) -> ExecuteActivityInput:
    """The same call, with its leases where the body can see them."""
    if kind_of(input) != "process":
        return input
    return replace(input, fn=CarriesLeases(input.fn, tuple(lease.for_other_process() for lease in leases)))


@dataclass(frozen=True)
class CarriesLeases:
    """A process pool does not inherit context variables, so the function brings the leases along."""

    fn: Callable[..., Any]
    leases: tuple[Lease, ...]

    def __call__(self, *args: Any) -> Any:
        """Run the function with the leases in place."""
        token = held_leases.set(self.leases)
        try:
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
