"""Permits for waiters: gives a worker one more for each activity that waits for a lock."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
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
from lock_interceptor.places import Places
from lock_interceptor.room import MAX_WAITERS, WaitingRoom

MAX_WAITERS_BESIDE = 1000
"""How many wait in a worker that has permits for them."""
DEFAULT_PERMITS = 100
"""What the SDK takes for ``max_concurrent_activities``."""

Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Literal[True]]"]


def give_waiters_permits(config: WorkerConfig, max_waiters: int | None) -> tuple[WaitingRoom, Places | None]:
    """Change a worker's configuration so that waiters do not count against its activities.

    The user's ``max_concurrent_...`` go on to hold. A tuner of the user's own stays in charge; waiters then
    occupy its permits, and few of them are let in.

    Returns:
        Where activities wait, and for how many bodies there are places; None if each comes with its permit.
    """
    if config.get("tuner") is not None:
        room = WaitingRoom(max_waiters or MAX_WAITERS)
        telemetry.own_tuner(room.size)
        return room, None
    room = WaitingRoom(max_waiters or MAX_WAITERS_BESIDE)
    limit = config.get("max_concurrent_activities") or DEFAULT_PERMITS
    if config.get("activities"):
        _warn_of_small_pool(config)
        limits = (
            config.get("max_concurrent_workflow_tasks"),
            config.get("max_concurrent_local_activities"),
            config.get("max_concurrent_nexus_tasks"),
        )
        workflow_tasks, local, nexus = (FixedSizeSlotSupplier(limit or DEFAULT_PERMITS) for limit in limits)
        config["tuner"] = WorkerTuner.create_composite(
            workflow_supplier=workflow_tasks,
            activity_supplier=PermitsBesideWaiters(limit, room),
            local_activity_supplier=local,
            nexus_supplier=nexus,
        )
        # the SDK takes these or a tuner
        config["max_concurrent_workflow_tasks"] = None
        config["max_concurrent_activities"] = None
        config["max_concurrent_local_activities"] = None
        config["max_concurrent_nexus_tasks"] = None
    return room, Places(limit)


def _warn_of_small_pool(config: WorkerConfig) -> None:
    """What the SDK says of ``max_concurrent_activities``, which it does not see any more."""
    threads = getattr(config.get("activity_executor"), "_max_workers", None)
    limit = config.get("max_concurrent_activities") or 0
    if isinstance(threads, int) and threads < limit:
        warnings.warn(
            f"Worker max_concurrent_activities is {limit} but activity_executor's max_workers is only "
            f"{threads}",
            stacklevel=5,  # where the worker is made
        )


class PermitsBesideWaiters(CustomSlotSupplier):
    """Issues `limit` permits, and one more for each waiter in the room that has no place for its body.

    A waiter does nothing, so it does not count against what a worker may do at once. Before it asks for its
    lock it takes a place for its body, and counts again. Permits go to pollers long before there is an
    activity for them: so more activities may come than bodies fit, and `lock_interceptor.places`, not this
    number, sees to it that no more than `limit` run. Temporal calls the synchronous methods from threads of
    its own.
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
        # fewer than none: a waiter that has its place counts now, while pollers have all permits
        return max(self._limit + self._room.without_place - self._issued, 0)

    def _serve(self) -> None:
        """Call as many as there are permits; each looks again for itself."""
        with self._lock:
            if not self._calls:
                return
            called = [self._calls.popleft() for _ in range(min(self._free(), len(self._calls)))]
        for loop, future in called:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the worker with it
                loop.call_soon_threadsafe(_answer, future)


def _answer(future: asyncio.Future[Literal[True]]) -> None:
    if not future.done():
        future.set_result(True)
