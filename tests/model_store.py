"""The in-memory store, and what only servers have: other primaries, lost writes, keys that end."""

import copy
from dataclasses import dataclass, replace
from datetime import timedelta

from virtual_time import Clock

from lock_interceptor.store import Claim, Granted, LockId, Queueing, Waiting
from lock_interceptor.testing import InMemoryLockStore


@dataclass
class _Epoch:
    """Under which primary a lock was last asked for, and until when nothing new is granted."""

    primary: str
    longest: int = 0
    grace_ends: int = 0


class ModelStore(InMemoryLockStore):
    """What the scripts should answer under this clock and its primaries."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._primary_of = clock
        self._epochs: dict[LockId, _Epoch] = {}

    async def acquire(
        self, claim: Claim, *, lease: timedelta, queueing: Queueing | None = None
    ) -> Granted | Waiting:
        """As the in-memory store, but nothing is granted for a lease after another primary took over."""
        lock, lease_ms = self._current(claim.lock), _ms(lease)
        known = claim.owner in lock.holders
        epoch = self._epochs.setdefault(claim.lock, _Epoch(self._primary_of.primary))
        if not known and epoch.primary != self._primary_of.primary:
            epoch.primary = self._primary_of.primary
            epoch.grace_ends = lock.now + max(epoch.longest, lease_ms, _ms(claim.usual_lease))
        left = epoch.grace_ends - lock.now
        if left > 0 and not known:
            # nobody finds a slot free where there is none
            answer = await super().acquire(replace(claim, limit=0), lease=lease, queueing=queueing)
            assert isinstance(answer, Waiting)
            return replace(answer, settling=timedelta(milliseconds=left))
        answer = await super().acquire(claim, lease=lease, queueing=queueing)
        if isinstance(answer, Granted) and not known:
            epoch.longest = max(epoch.longest, lease_ms, _ms(claim.usual_lease))
        return answer

    def forget(self, lock: LockId) -> None:
        """The key is gone."""
        self._locks.pop(lock, None)
        self._epochs.pop(lock, None)

    def save(self, lock: LockId) -> tuple[object, object]:
        """What a replica has of the lock."""
        return copy.deepcopy((self._locks.get(lock), self._epochs.get(lock)))

    def restore(self, lock: LockId, saved: tuple[object, object]) -> None:
        """What a replica had is all that there is."""
        self.forget(lock)
        for place, value in zip((self._locks, self._epochs), copy.deepcopy(saved), strict=True):
            if value is not None:
                place[lock] = value


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
