"""A waiter like the one in a worker, without Temporal: it waits for one lock and can wait for long."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from redis_tools import LEASE

from lock_interceptor.acquisition import Acquisition
from lock_interceptor.keeper import Hold, LeaseKeeper
from lock_interceptor.lease import clock
from lock_interceptor.room import WaitingRoom
from lock_interceptor.store import Claim, LockStore
from lock_interceptor.terms import Terms, Want
from lock_interceptor.waiting import Allowance


@dataclass
class Patient:
    """An attempt that has minutes to wait and that nobody cancels."""

    started: float = field(default_factory=clock)
    allowance: Allowance = field(default_factory=lambda: Allowance(schedule_to_close=600, start_to_close=600))
    check_every: float = 60.0
    used_before: float = 0.0
    """Seconds that the attempts before this one took."""

    @property
    def waited(self) -> float:
        """Seconds since the activity was scheduled."""
        return self.used_before + clock() - self.started

    def check(self) -> None:
        """Nothing keeps it from waiting."""

    @contextlib.asynccontextmanager
    async def watch(self, notify: Callable[[], None]) -> AsyncIterator[None]:
        """Nothing will happen."""
        del notify
        yield

    def keeps_place(self) -> bool:
        """There is no other attempt."""
        return False

    def cancelled(self) -> BaseException:
        """What a cancelled wait ends with."""
        return asyncio.CancelledError()


@contextlib.asynccontextmanager
async def waiting(
    store: LockStore, claim: Claim, *, interval: float = 60.0, lease: timedelta = LEASE
) -> AsyncIterator[asyncio.Task[Hold]]:
    """Wait for a lock in the background, polling so often; whatever came of it is given back at the end."""
    keeper = LeaseKeeper(store)
    terms = Terms(
        store=store,
        keeper=keeper,
        room=WaitingRoom(100),
        attempt=Patient(),
        interval=interval,
        max_wait=60.0,
        on_lost=lambda: None,
    )
    acquisition = Acquisition([Want(claim=claim, lease=lease)], terms)

    async def acquire() -> Hold:
        (hold,) = await acquisition.acquire()
        return hold

    task = asyncio.create_task(acquire())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        acquisition.abandon(keep_place=False)
        await keeper.close()
