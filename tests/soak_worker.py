"""What a soak's processes do: clients of `fault_load`, some of them on keyed locks."""

from dataclasses import dataclass

import fault_load_worker
from fault_load_plan import LoadLock, Plan

from lock_interceptor.store import LockId

CLIENTS = 12
"""Of each process: two at each lock."""
MAX_WAIT = 5.0
BEFORE = (
    LoadLock("one", 1),
    LoadLock("three", 3),
    LoadLock("long", 3, (1.0, 4.0)),
    LoadLock("tenant[a]", 1),
    LoadLock("tenant[b]", 2),
    LoadLock("tenant[c]", 1, (0.2, 0.4)),
)
"""The locks, and how they are used by one version of an application."""
AFTER = (
    LoadLock("one", 1),
    LoadLock("three", 5),
    LoadLock("long", 2, (1.0, 4.0)),
    LoadLock("tenant[a]", 2),
    LoadLock("tenant[b]", 1),
    LoadLock("tenant[c]", 1, (0.2, 0.4)),
)
"""And by another version."""
LONGER = 1.5
"""By so much the leases of the other version are longer."""


@dataclass(frozen=True)
class SoakPlan(Plan):
    """A lock's name may have a key in brackets."""

    def be_different(self) -> None:
        """Make this process what it is to be."""
        super().be_different()
        fault_load_worker.LockId = by_label  # type: ignore[assignment,misc] - in this process only


def by_label(application: str, label: str) -> LockId:
    """The lock that people call so."""
    name, _, key = label.removesuffix("]").partition("[")
    return LockId(application, name, key or None)
