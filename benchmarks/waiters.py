"""A lock's line as in a worker, without Temporal: waits, is woken, renews, gives back."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from lock_interceptor import LockSettings
from lock_interceptor.guard import Guard
from lock_interceptor.keeper import LeaseKeeper
from lock_interceptor.lease import clock
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.room import WaitingRoom
from lock_interceptor.store import Claim
from lock_interceptor.terms import Want
from lock_interceptor.waiting import Allowance


@dataclass
class Patient:
    """An attempt that has an hour, and that nobody cancels."""

    started: float = field(default_factory=clock)
    allowance: Allowance = field(
        default_factory=lambda: Allowance(schedule_to_close=3600, start_to_close=3600)
    )
    check_every: float = 60.0

    @property
    def waited(self) -> float:
        return clock() - self.started

    def check(self) -> None:
        pass

    @contextlib.asynccontextmanager
    async def watch(self, notify: Callable[[], None]) -> AsyncIterator[None]:
        del notify
        yield

    def keeps_place(self) -> bool:
        return False

    def cancelled(self) -> BaseException:
        raise NotImplementedError


class Line:
    """Runs bodies under locks; closed at the end."""

    def __init__(
        self, settings: LockSettings, *, max_wait: float = 900.0, kind: type[RedisLockStore] = RedisLockStore
    ) -> None:
        self.settings = settings
        self.store = kind(settings)
        self._keeper = LeaseKeeper(self.store)
        self._guard = Guard(
            self.store,
            self._keeper,
            WaitingRoom(100_000),
            retry_interval=settings.retry_interval,
            max_wait=timedelta(seconds=max_wait),
        )

    async def run(self, claim: Claim, body: Callable[[], Awaitable[Any]]) -> Any:
        async def call(*_: Any) -> Any:
            return await body()

        want = Want(claim=claim, lease=self.settings.lease)
        return await self._guard.run([want], Patient(), call)

    async def close(self) -> None:
        await self._keeper.close()
        await self.store.close()
