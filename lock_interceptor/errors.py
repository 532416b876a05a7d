"""Every error that this package raises.

    LockError
    ├── LockConfigurationError   a mistake in code or settings; never retried
    ├── LockBusy                 on_conflict="fail" and somebody else has the lock; never retried
    ├── LockNotAcquired          still waiting in line; retried, the place is kept
    ├── LockLost                 the lease ended while the body ran; retried
    └── LockStoreUnavailable     Redis did not answer; retried

Temporal shows each one as an ``ApplicationError`` whose ``type`` is the class name
(``lock_interceptor/worker/failures.py`` turns one into the other), so the names are API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta


class LockError(Exception):
    """Base of all errors of this package."""


class LockConfigurationError(LockError):
    """Code or settings are wrong, and trying again cannot help.

    Raised by `needs_lock` for invalid arguments, by `LockSettings` for invalid values, by a ``Worker``
    that is given a locked workflow, and by an activity that cannot be locked as it was called.
    """


class LockBusy(LockError):
    """Somebody else has the lock, or is next in line, and ``on_conflict="fail"`` was asked for."""


class LockNotAcquired(LockError):
    """The lock was not free within the time that this attempt could wait.

    With ``on_conflict="fail"`` also: only an earlier attempt of the same activity, or nobody, holds it.

    Attributes:
        retry_after: when the next attempt should come back, or None to leave that to the retry policy.
    """

    def __init__(self, message: str, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LockLost(LockError):
    """The lease ended before the body did, so somebody else may hold the lock now."""


class LockStoreUnavailable(LockError):
    """The store gave no answer, or one that says "try again later".

    The cause is kept as ``__cause__``. What was asked may or may not have happened.

    Attributes:
        retry_after: when the next attempt should come back, or None to leave that to the retry policy.
    """

    def __init__(self, message: str, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
