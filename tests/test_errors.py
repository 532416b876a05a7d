"""The errors: how they relate, travel between processes, and look to Temporal."""

import copy
import pickle
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationErrorCategory

import lock_interceptor
from lock_interceptor import (
    LockBusy,
    LockConfigurationError,
    LockError,
    LockLost,
    LockNotAcquired,
    LockStoreUnavailable,
)
from lock_interceptor import errors as module
from lock_interceptor.worker.failures import to_application_error

SOON = timedelta(seconds=5)
ALL = [
    LockError("base"),
    LockConfigurationError("wrong"),
    LockBusy("taken"),
    LockNotAcquired("in line", SOON),
    LockNotAcquired("in line"),
    LockLost("gone"),
    LockStoreUnavailable("no answer", SOON),
    LockStoreUnavailable("no answer"),
]


def test_one_base() -> None:
    """Every error is a `LockError`, public, and drawn in the module's tree."""
    classes = {
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert classes == {type(error).__name__ for error in ALL}
    for name in classes:
        assert issubclass(getattr(lock_interceptor, name), LockError)
        assert name in (module.__doc__ or "")


@pytest.mark.parametrize("error", ALL, ids=repr)
@pytest.mark.parametrize("trip", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy])  # noqa: S301
def test_survives_the_way_from_another_process(error: LockError, trip: object) -> None:
    """From a process pool an error arrives as it was raised, with its attributes."""
    arrived = trip(error)
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


@pytest.mark.parametrize("kind", [LockNotAcquired, LockStoreUnavailable])
def test_time_of_return_is_an_attribute(kind: type[LockNotAcquired | LockStoreUnavailable]) -> None:
    """When to come back is for the program; the message stays as it was written."""
    assert (str(kind("later", SOON)), kind("later", SOON).retry_after) == ("later", SOON)
    assert kind("later").retry_after is None


@pytest.mark.parametrize("error", ALL, ids=repr)
def test_in_temporal(error: LockError) -> None:
    """Temporal gets message and class name, and mistakes and busy locks are not retried."""
    failure = to_application_error(error)
    assert failure.message == str(error)
    assert failure.type == type(error).__name__
    assert failure.non_retryable == isinstance(error, LockConfigurationError | LockBusy)
    assert failure.next_retry_delay == getattr(error, "retry_after", None)


@pytest.mark.parametrize("error", ALL, ids=repr)
def test_waiting_in_line_is_no_alarm(error: LockError) -> None:
    """Waiting is expected and benign, so it raises no failure metric; everything else does."""
    benign = isinstance(error, LockNotAcquired)
    category = ApplicationErrorCategory.BENIGN if benign else ApplicationErrorCategory.UNSPECIFIED
    assert to_application_error(error).category == category
