"""Where the bodies of a worker's activities run: its permits, and the threads or processes of its executor.

All activities of a worker pass here, so that the place which a waiter takes before it asks for its lock is
really there when the lock is granted.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from weakref import WeakKeyDictionary

from temporalio import activity
from temporalio.worker import ActivityOutboundInterceptor, ExecuteActivityInput

from lock_interceptor.pausing import setting
from lock_interceptor.places import BodyPlace, Places
from lock_interceptor.worker.attempt import HEARTBEAT_EVERY

_executors: WeakKeyDictionary[Executor, Places] = WeakKeyDictionary()
"""For the whole process, since workers and interceptors may share an executor."""
_mutex = threading.Lock()


class BodyPlaces:
    """The places of one worker."""

    def __init__(self, worker: Places | None = None) -> None:
        """Create them.

        Args:
            worker: for how many bodies the worker has permits; None where a permit comes with each activity.
        """
        self._worker = worker

    def of_locked(self, input: ExecuteActivityInput) -> BodyPlace:
        """The place that a locked activity takes before it asks for its locks."""
        needs = (self._worker, _places_of(input.executor))
        return BodyPlace(*(need for need in needs if need is not None))

    @contextlib.asynccontextmanager
    async def for_unlocked(
        self, input: ExecuteActivityInput, outbound: ActivityOutboundInterceptor
    ) -> AsyncIterator[None]:
        """While entered, an activity without locks has its place.

        It waits for a thread as it would in the queue of the executor. It may have to wait for the worker,
        too: a waiter has got its lock while a permit was with a poller, which has brought this one. That wait
        would not be without locks, so it is the first to go on, and heartbeats go out.
        """
        info = activity.info()
        async with contextlib.AsyncExitStack() as stack:
            # local activities have permits of their own
            if self._worker is not None and not info.is_local:
                place = BodyPlace(self._worker, urgent=True)
                beat = info.heartbeat_timeout
                every = min(beat.total_seconds() / 4, HEARTBEAT_EVERY) if beat else None
                await stack.enter_async_context(_had(place, every, outbound))
            if (executor := _places_of(input.executor)) is not None:
                await stack.enter_async_context(_had(BodyPlace(executor)))
            yield


@contextlib.asynccontextmanager
async def _had(
    place: BodyPlace, every: float | None = None, outbound: ActivityOutboundInterceptor | None = None
) -> AsyncIterator[None]:
    """While entered, the body has its place; heartbeats go out `every` so many seconds until then."""
    served = asyncio.Event()

    async def pause() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every):
                await served.wait()
        served.clear()
        if every and outbound is not None and not place.taken:
            outbound.heartbeat(*activity.info().heartbeat_details)

    try:
        if not place.take():
            with place.waiting(setting(served)):
                await place.until_taken(pause)
        place.run()
        yield
    finally:
        place.give_back()


def _places_of(executor: Executor | None) -> Places | None:
    """The threads or processes of an executor; None if it does not say how many it has."""
    size = getattr(executor, "_max_workers", None)  # the SDK, too, compares it with the worker's permits
    if executor is None or not isinstance(size, int):
        return None
    with _mutex, contextlib.suppress(TypeError):  # not every class can be kept weakly
        return _executors.setdefault(executor, Places(size))
    return None
