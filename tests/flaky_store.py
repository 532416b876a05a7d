"""A lock store that fails when told to, as Redis does: before or after it has done what was asked."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

from lock_interceptor import LockStoreUnavailable
from lock_interceptor.store import Claim, Granted, Queueing, Waiting
from lock_interceptor.testing import InMemoryLockStore


class FlakyStore(InMemoryLockStore):
    """Answers an operation with an error as often as `before` or `after` says, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Counter[str] = Counter()
        """Requests that get lost."""
        self.after: Counter[str] = Counter()
        """Answers that get lost."""
        self.hung: Counter[str] = Counter()
        """Requests that are never answered."""
        self.calls: Counter[str] = Counter()

    async def acquire(
        self, claim: Claim, *, lease: timedelta, queueing: Queueing | None = None
    ) -> Granted | Waiting:
        """See `LockStore.acquire`."""
        self._lose("acquire", self.before)
        answer = await super().acquire(claim, lease=lease, queueing=queueing)
        return self._lose("acquire", self.after) or answer

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """See `LockStore.renew`."""
        self._lose("renew", self.before)
        return self._lose("renew", self.after) or await super().renew(claim, lease=lease)

    async def release(self, claim: Claim) -> bool:
        """See `LockStore.release`."""
        self._lose("release", self.before)
        if self.hung["release"] > 0:
            self.hung["release"] -= 1
            await asyncio.get_running_loop().create_future()
        answer = await super().release(claim)
        return self._lose("release", self.after) or answer

    def _lose(self, operation: str, losses: Counter[str]) -> Any:
        if losses is self.before:
            self.calls[operation] += 1
        if losses[operation] > 0:
            losses[operation] -= 1
            raise LockStoreUnavailable(f"{operation} got lost")
