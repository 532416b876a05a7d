"""`holding`: a lease for an activity that is tested as the plain function it is."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from datetime import timedelta

from lock_interceptor.lease import Lease, clock, held_leases
from lock_interceptor.spec import LockSpec


@contextlib.contextmanager
def holding(
    name: str,
    *,
    key: str | None = None,
    token: int = 1,
    slot: int = 0,
    expires_in: timedelta | None = None,
) -> Iterator[Lease]:
    """While entered, `current_lease` gives this lease; nested for an activity with stacked locks.

    Works around a plain call and around ``ActivityEnvironment().run(...)``. No lock is taken and nothing is
    renewed: the lease lasts until ``lease.lose("...")`` ends it, which `Lease.lost` and
    `Lease.raise_if_lost` then tell. What a worker does besides, stopping the body, happens in a
    `LockedActivityEnvironment`.

    Other threads see the lease if they run in a copy of this context, as with `asyncio.to_thread`.

    Args:
        name: the lock's name, as in ``@needs_lock``.
        key: what the lock's ``key`` function would return.
        token: the fencing token.
        slot: the seat, 0 to max_locks-1.
        expires_in: when the lease ends by itself; by default never.

    Raises:
        LockConfigurationError: `name` cannot name a lock.
    """
    LockSpec(name)  # the check
    expires = math.inf if expires_in is None else clock() + expires_in.total_seconds()
    lease = Lease(name, token, slot, key=key, expires=expires, deadline=math.inf)
    held_leases.set((*held_leases.get(), lease))
    try:
        yield lease
    finally:
        # not reset(): the two halves of a fixture may run in two contexts
        held_leases.set(tuple(other for other in held_leases.get() if other is not lease))
