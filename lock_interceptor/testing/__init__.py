"""For users' own tests: locks without a server, faults on demand, and a witness for the limit.

`InMemoryLockStore` keeps every promise of `LockStore` in one process, `FaultyLockStore` breaks them when told
to. `holding` gives an activity under test a lease, and `LockedActivityEnvironment` runs it under its locks.
`OverlapRecorder` tells whether more ran at once than may. ``lock_interceptor.testing.fixtures`` has fixtures.
"""

from lock_interceptor.testing.environment import LockedActivityEnvironment, quick_settings
from lock_interceptor.testing.faults import FaultyLockStore
from lock_interceptor.testing.leases import holding
from lock_interceptor.testing.memory_store import InMemoryLockStore
from lock_interceptor.testing.overlap import Interval, OverlapRecorder, assert_never_more_than

__all__ = [
    "FaultyLockStore",
    "InMemoryLockStore",
    "Interval",
    "LockedActivityEnvironment",
    "OverlapRecorder",
    "assert_never_more_than",
    "holding",
    "quick_settings",
]
