"""`LockSpec`: one lock that an activity needs, and what may stand in it.

Needs the standard library only, because workflow files import activity modules.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePath
from typing import Any, Literal

from lock_interceptor.errors import LockConfigurationError

MAX_NAME_BYTES = 1024
MAX_LOCKS = 1_000_000
MIN_LEASE = timedelta(seconds=1)
MAX_LEASE = timedelta(days=1)

OnConflict = Literal["wait", "fail"]


@dataclass(frozen=True, slots=True)
class LockSpec:
    """One lock that an activity needs, as `needs_lock` was given it.

    Raises:
        LockConfigurationError: an argument is invalid; the message names it.
    """

    lock_name: str | None = None
    """The lock's name; None stands for the activity type as registered."""
    max_locks: int = 1
    """How many executions may hold the lock at once, over all workers."""
    key: Callable[..., str] | None = None
    """From the activity's arguments to a string that picks one of many independent locks."""
    lease: timedelta | None = None
    """How long a dead worker's place stays taken; None stands for ``LOCK_LEASE_SECONDS``."""
    on_conflict: OnConflict = "wait"
    """``"wait"`` in line, or ``"fail"`` with `LockBusy`."""

    def __post_init__(self) -> None:
        if self.lock_name is not None:
            object.__setattr__(self, "lock_name", check_name("lock_name", self.lock_name))
        # bool is an int, and max_locks=True is a mistake that would work as 1
        if isinstance(self.max_locks, bool) or not isinstance(self.max_locks, int):
            raise _invalid("max_locks", self.max_locks, "a whole number of 1 or more")
        if not 1 <= self.max_locks <= MAX_LOCKS:
            raise _invalid("max_locks", self.max_locks, f"between 1 and {MAX_LOCKS}")
        if self.key is not None and not callable(self.key):
            raise _invalid("key", self.key, "a function, such as key=lambda order: order.region")
        if self.key is not None and _is_async(self.key):
            raise _invalid("key", self.key, "an ordinary function, not an async one")
        if self.lease is not None:
            if not isinstance(self.lease, timedelta):
                raise _invalid("lease", self.lease, "a timedelta, such as lease=timedelta(seconds=30)")
            if not MIN_LEASE <= self.lease <= MAX_LEASE:
                raise _invalid("lease", self.lease, "between 1 second and 1 day")
        if self.on_conflict not in ("wait", "fail"):
            raise _invalid("on_conflict", self.on_conflict, '"wait" or "fail"')


def check_name(argument: str, name: object) -> str:
    """Return `name`, as a plain string, if it can name a lock.

    Raises:
        LockConfigurationError: it is not a string, empty, too long, or not encodable.
    """
    if not isinstance(name, str):
        raise _invalid(argument, name, "a string")
    if not name.strip():
        raise _invalid(argument, name, "a string with something in it")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise _invalid(argument, name, "a string that UTF-8 can encode (no lone surrogates)") from None
    if size > MAX_NAME_BYTES:
        raise LockConfigurationError(
            f"needs_lock: {argument} is {size} bytes long, at most {MAX_NAME_BYTES} are allowed; "
            f"it starts with {name[:40]!r}"
        )
    return _plain(name)


def _plain(text: str) -> str:
    """The text itself: a member of an Enum with strings would print as ``Region.EU``."""
    return str.__str__(text)


def _is_async(fn: Any) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


def _invalid(argument: str, value: object, wanted: str) -> LockConfigurationError:
    try:
        shown = repr(value)
    except Exception:  # a number of thousands of digits, or a __repr__ with a fault of its own
        shown = f"this {type(value).__name__}"
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return LockConfigurationError(f"needs_lock: {argument} must be {wanted}, not {shown}")


def resolve_key(spec: LockSpec, activity: str, args: tuple[Any, ...]) -> str | None:
    """Call the spec's key function on an activity's arguments.

    Raises:
        LockConfigurationError: it raised, or returned something that cannot name a lock.
    """
    if spec.key is None:
        return None
    where = f"the key function of @needs_lock on activity {activity}"
    try:
        key = spec.key(*args)
    except Exception as error:
        problem = f"{type(error).__name__}{_place(error)}"
    else:
        problem = ""
    # not while the original is handled: it may quote the arguments, and histories show failures as they are
    if problem:
        raise LockConfigurationError(
            f"{where} raised {problem} for {len(args)} argument(s); it must accept the activity's arguments "
            "(of a method all but self) and return a string"
        )
    if not isinstance(key, str):
        raise LockConfigurationError(f"{where} returned {type(key).__name__}, not a string")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise LockConfigurationError(f"{where} returned a string that UTF-8 cannot encode") from None
    if size == 0 or size > MAX_NAME_BYTES:
        raise LockConfigurationError(
            f"{where} returned a string of {size} bytes, allowed are 1 to {MAX_NAME_BYTES}"
        )
    return _plain(key)


def _place(error: Exception) -> str:
    """The line of the key function, unless it was not even entered."""
    frames = traceback.extract_tb(error.__traceback__, limit=2)[1:]
    return f" at {PurePath(frames[0].filename).name}:{frames[0].lineno}" if frames else ""
