"""A concurrency limit for Temporal activities that holds across every worker.

What activity modules need loads with the package. The rest loads on first use (PEP 562), and past the
workflow sandbox: workflow files import activity modules, and the sandbox would import redis anew for each
workflow, and not let structlog be imported at all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from temporalio import workflow

from lock_interceptor.errors import (
    LockBusy,
    LockConfigurationError,
    LockError,
    LockLost,
    LockNotAcquired,
    LockStoreUnavailable,
)
from lock_interceptor.lease import Lease, current_lease
from lock_interceptor.marker import needs_lock
from lock_interceptor.spec import LockSpec

if TYPE_CHECKING:
    from lock_interceptor.redis_store import RedisLockStore
    from lock_interceptor.settings import LockSettings
    from lock_interceptor.store import LockStore
    from lock_interceptor.worker.interceptor import LockInterceptor
    from lock_interceptor.worker.plugin import LockPlugin

    __version__: str

__all__ = [
    "Lease",
    "LockBusy",
    "LockConfigurationError",
    "LockError",
    "LockInterceptor",
    "LockLost",
    "LockNotAcquired",
    "LockPlugin",
    "LockSettings",
    "LockSpec",
    "LockStore",
    "LockStoreUnavailable",
    "RedisLockStore",
    "__version__",
    "current_lease",
    "needs_lock",
]

_LATE = {
    "LockInterceptor": "lock_interceptor.worker.interceptor",
    "LockPlugin": "lock_interceptor.worker.plugin",
    "LockSettings": "lock_interceptor.settings",
    "LockStore": "lock_interceptor.store",
    "RedisLockStore": "lock_interceptor.redis_store",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - takes longer to load than all the rest here

        return version("lock-interceptor")
    if name in _LATE:
        with workflow.unsafe.imports_passed_through():
            return getattr(importlib.import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
