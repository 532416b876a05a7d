"""Our errors as Temporal sees them, in this one place."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from lock_interceptor.errors import (
    LockBusy,
    LockConfigurationError,
    LockError,
    LockNotAcquired,
    LockStoreUnavailable,
)


def to_application_error(error: LockError) -> ApplicationError:
    """The failure that stands in the workflow's history and in Temporal's UI; its type is the class name.

    Waiting in line is expected, so `LockNotAcquired` is benign: no warning, no failure metric.
    """
    delay = error.retry_after if isinstance(error, LockNotAcquired | LockStoreUnavailable) else None
    benign = isinstance(error, LockNotAcquired)
    return ApplicationError(
        str(error),
        type=type(error).__name__,
        non_retryable=isinstance(error, LockConfigurationError | LockBusy),
        next_retry_delay=delay,
        category=ApplicationErrorCategory.BENIGN if benign else ApplicationErrorCategory.UNSPECIFIED,
    )
