"""Permits for waiters: gives a worker one more for each activity that waits for a lock."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from typing import Literal

from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    WorkerConfig,
    WorkerTuner,
)

from lock_interceptor import telemetry
from lock_interceptor.room import MAX_WAITERS, WaitingRoom

MAX_WAITERS_BESIDE = 1000
"""How many wait in a worker that has permits for them."""
DEFAULT_PERMITS = 100
"""What the SDK takes for ``max_concurrent_activities``."""

Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Literal[True]]"]


def give_waiters_permits(config: WorkerConfig, max_waiters: int | None) -> WaitingRoom:
    """Change a worker's configuration so that waiters do not count against its activities.

    The user's ``max_concurrent_...`` go on to hold. A tuner of the user's own stays in charge; waiters then
    occupy its permits, and few of them are let in.
    """
    if config.get("tuner") is not None:
        room = WaitingRoom(max_waiters or MAX_WAITERS)
        telemetry.own_tuner(room.size)
        return room
    room = WaitingRoom(max_waiters or MAX_WAITERS_BESIDE)
    if config.get("activities"):
        limits = (
            config.get("max_concurrent_workflow_tasks"),
            config.get("max_concurrent_local_activities"),
            config.get("max_concurrent_nexus_tasks"),
        )
        workflow_tasks, local, nexus = (FixedSizeSlotSupplier(limit or DEFAULT_PERMITS) for limit in limits)
        config["tuner"] = WorkerTuner.create_composite(
            workflow_supplier=workflow_tasks,
            activity_supplier=PermitsBesideWaiters(
                config.get("max_concurrent_activities") or DEFAULT_PERMITS, room
            ),
            local_activity_supplier=local,
            nexus_supplier=nexus,
        )
        # the SDK takes these or a tuner
        config["max_concurrent_workflow_tasks"] = None
        config["max_concurrent_activities"] = None
        config["max_concurrent_local_activities"] = None
        config["max_concurrent_nexus_tasks"] = None
    return room


class PermitsBesideWaiters(CustomSlotSupplier):
    """Issues `limit` permits, and one more for each waiter in the room.

    A waiter does nothing, so it does not count against what a worker may do at once. When its lock is
    granted it counts again, and for that moment more than `limit` may run: as many more as locks were
    granted. Temporal calls the synchronous methods from threads of its own.
    """

    def __init__(self, limit: int, room: WaitingRoom) -> None:
        """Create a supplier; the room tells it when somebody comes or goes."""
        self._limit = limit
        self._room = room
        self._lock = threading.Lock()
        self._issued = 0
        self._calls: deque[Call] = deque()
        room.on_change = self._serve

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:  # noqa: ARG002 - the SDK's signature
        """See base class."""
        while True:
            loop = asyncio.get_running_loop()
            call = (loop, loop.create_future())
            with self._lock:
                if self._free():
                    self._issued += 1
                    return SlotPermit()
                self._calls.append(call)
            try:
                await call[1]
            except asyncio.CancelledError:
                with self._lock:
                    if call in self._calls:
                        self._calls.remove(call)
                self._serve()  # in case the permit had been promised to this one
                raise

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:  # noqa: ARG002 - as above
        """See base class."""
        with self._lock:
            if not self._free():
                return None
            self._issued += 1
            return SlotPermit()

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """See base class."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:  # noqa: ARG002 - as above
        """See base class."""
        with self._lock:
            self._issued -= 1
        self._serve()

    def _free(self) -> int:
        # fewer than none: a waiter that has its lock, and now counts, has left the room with its permit
        return max(self._limit + min(self._room.occupied, self._room.size) - self._issued, 0)

    def _serve(self) -> None:
        """Call as many as there are permits; each looks again for itself."""
        with self._lock:
            called = [self._calls.popleft() for _ in range(min(self._free(), len(self._calls)))]
        for loop, future in called:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the worker with it
                loop.call_soon_threadsafe(_answer, future)


def _answer(future: asyncio.Future[Literal[True]]) -> None:
    if not future.done():
        future.set_result(True)
