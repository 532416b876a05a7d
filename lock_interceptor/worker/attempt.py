"""The running attempt of an activity, as Temporal tells of it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta

from temporalio import activity
from temporalio.worker import ActivityOutboundInterceptor

from lock_interceptor.errors import LockConfigurationError, LockLost, LockNotAcquired
from lock_interceptor.lease import clock
from lock_interceptor.store import DEFAULT_PRIORITY, Party
from lock_interceptor.waiting import AT_ONCE, Allowance

CHECK_EVERY = 0.5
"""Seconds at most between looks at whether a threaded or process activity was cancelled: nothing interrupts
those."""
HEARTBEAT_EVERY = 10.0
"""Seconds between heartbeats at most, since a cancel arrives as the answer to one; a quarter of a shorter
timeout."""


class ActivityAttempt:
    """Implements `lock_interceptor.terms.Attempt` for the activity that runs here."""

    def __init__(self, outbound: ActivityOutboundInterceptor, *, interrupted: bool) -> None:
        """Read what Temporal says of this attempt.

        Args:
            outbound: what to heartbeat through.
            interrupted: whether a cancel interrupts it by itself, as it does an async activity.

        Raises:
            LockConfigurationError: it is a local activity, or has no schedule-to-close timeout.
        """
        self.info = info = activity.info()
        self.started = clock()
        self.allowance = _allowance(info)
        self._outbound = outbound
        self._heartbeat_timeout = (
            info.heartbeat_timeout.total_seconds() if info.heartbeat_timeout else math.inf
        )
        self._heartbeat_every = every = min(self._heartbeat_timeout / 4, HEARTBEAT_EVERY)
        # a whole part of it, so that no heartbeat is late
        self.check_every = every if interrupted else every / math.ceil(every / CHECK_EVERY)
        # none for a lock that is free at once
        self._next_heartbeat = self.started + min(self._heartbeat_every, CHECK_EVERY)
        self._last_heartbeat = self.started

    @property
    def priority(self) -> int:
        """``Priority.priority_key``, lower first."""
        return self.info.priority.priority_key or DEFAULT_PRIORITY

    @property
    def identity(self) -> tuple[str, ...]:
        """What names the activity execution, the same for all its attempts."""
        info = self.info
        run = info.workflow_run_id or info.activity_run_id or info.workflow_id or ""
        return (info.namespace, run, info.activity_id)

    @property
    def party(self) -> Party:
        """The activity, for people."""
        info = self.info
        return Party(
            workflow=info.workflow_id or "",
            workflow_type=info.workflow_type or "",
            activity=info.activity_type,
            activity_id=info.activity_id,
            attempt=info.attempt,
            worker=f"{os.getpid()}@{socket.gethostname()}",
            since=int(info.scheduled_time.timestamp()),
        )

    @property
    def waited(self) -> float:
        """Seconds since the activity was scheduled, for its first attempt."""
        return _used_before(self.info) + clock() - self.started

    def check(self) -> None:
        """Heartbeat with the previous attempt's details, and raise if waiting has no point any more.

        Raises:
            CancelledError: the activity was cancelled, paused, reset or timed out.
            LockNotAcquired: the worker shuts down, or was stalled for longer than a timeout of the attempt;
                another attempt goes on with the same place in line.
        """
        if activity.is_cancelled():
            raise self.cancelled()
        # the server has begun the next attempt, which nobody may have told this one yet
        if self._silence > self._heartbeat_timeout or self._is_overdue:
            raise LockNotAcquired("this worker stalled; the place in line is kept", AT_ONCE)
        # the last attempt has nowhere to go on: it waits until it is cancelled
        if activity.is_worker_shutdown() and self.allowance.attempts_left != 0:
            raise self._shutting_down()
        if clock() >= self._next_heartbeat:
            self._last_heartbeat = clock()
            self._next_heartbeat = self._last_heartbeat + self._heartbeat_every
            # not activity.heartbeat(): that would overwrite the last attempt's checkpoint
            self._outbound.heartbeat(*self.info.heartbeat_details)

    @contextlib.contextmanager
    def heartbeating(self, begun: Callable[[], bool]) -> Iterator[None]:
        """While entered, and until the body has begun, heartbeat for it: it may have to wait for its pool."""
        loop, timers = asyncio.get_running_loop(), list[asyncio.TimerHandle]()

        def beat_later() -> None:
            timers[:] = [loop.call_later(self._heartbeat_every, beat)]

        def beat() -> None:
            if not begun():
                beat_later()
                with contextlib.suppress(LockLost):  # the body will not begin
                    self._outbound.heartbeat(*self.info.heartbeat_details)

        beat_later()
        try:
            yield
        finally:
            timers.pop().cancel()

    @contextlib.asynccontextmanager
    async def watch(self, notify: Callable[[], None]) -> AsyncIterator[None]:
        """Call `notify` when the worker begins to shut down."""

        async def wait() -> None:
            await activity.wait_for_worker_shutdown()
            notify()

        watching = asyncio.create_task(wait(), name="lock_interceptor.shutdown")
        try:
            yield
        finally:
            watching.cancel()

    def keeps_place(self) -> bool:
        """Whether another attempt may follow this one, which is being cancelled."""
        # "not found" is heard when the workflow is closed, but after a timeout too, of which a worker may
        # not know, since the SDK holds heartbeats back. Then the place is the next attempt's; and a place to
        # which nobody comes back is in no one's way
        details = activity.cancellation_details()
        return details is None or not details.cancel_requested

    @property
    def _silence(self) -> float:
        """Seconds since the last heartbeat."""
        return clock() - self._last_heartbeat

    @property
    def _is_overdue(self) -> bool:
        return clock() >= self.started + self.allowance.start_to_close

    def cancelled(self) -> asyncio.CancelledError | LockNotAcquired:
        """The error with which a cancelled attempt ends."""
        details = activity.cancellation_details()
        if details is not None and details.worker_shutdown and not details.cancel_requested:
            return self._shutting_down()
        return asyncio.CancelledError("the activity was cancelled while it waited for its lock")

    def _shutting_down(self) -> LockNotAcquired:
        return LockNotAcquired("this worker shuts down; the place in line is kept", AT_ONCE)


def _used_before(info: activity.Info) -> float:
    """Seconds from when the activity was scheduled until this attempt began, by the server's clock."""
    return max((info.started_time - info.scheduled_time).total_seconds(), 0.0)


def _allowance(info: activity.Info) -> Allowance:
    if info.is_local:
        raise LockConfigurationError(
            f"local activity {info.activity_type} cannot hold a lock: it cannot heartbeat, and blocks the "
            "shutdown of its worker. Call it with workflow.execute_activity() instead"
        )
    if info.schedule_to_close_timeout is None:
        raise LockConfigurationError(
            f"activity {info.activity_type} needs a lock, and so a schedule_to_close_timeout, which bounds "
            f"how long it may wait and hold: workflow.execute_activity({info.activity_type}, ..., "
            "schedule_to_close_timeout=timedelta(minutes=10))"
        )
    schedule_to_close = info.schedule_to_close_timeout.total_seconds() - _used_before(info)
    start_to_close = info.start_to_close_timeout or timedelta(seconds=schedule_to_close)
    attempts = info.retry_policy.maximum_attempts if info.retry_policy else 0
    if info.retry_policy and LockNotAcquired.__name__ in (info.retry_policy.non_retryable_error_types or ()):
        attempts = info.attempt  # a yield would end the activity, as the user asked
    return Allowance(
        schedule_to_close=schedule_to_close,
        start_to_close=min(start_to_close.total_seconds(), schedule_to_close),
        attempts_left=max(attempts - info.attempt, 0) if attempts else None,
    )
