"""`needs_lock`, the `LockSpec` that it attaches, and how specs are read off any callable.

Needs the standard library only, because workflow files import activity modules.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar, overload

from lock_interceptor.errors import LockConfigurationError

MARK = "__lock_interceptor_specs__"
MAX_NAME_BYTES = 1024
MAX_LOCKS = 1_000_000
MIN_LEASE = timedelta(seconds=1)
MAX_LEASE = timedelta(days=1)

Target = TypeVar("Target", bound=Callable[..., Any])
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
            check_name("lock_name", self.lock_name)
        # bool is an int, and max_locks=True is a mistake that would work as 1
        if isinstance(self.max_locks, bool) or not isinstance(self.max_locks, int):
            raise _invalid("max_locks", self.max_locks, "a whole number of 1 or more")
        if not 1 <= self.max_locks <= MAX_LOCKS:
            raise _invalid("max_locks", self.max_locks, f"between 1 and {MAX_LOCKS}")
        if self.key is not None and not callable(self.key):
            raise _invalid("key", self.key, "a function of the activity's arguments that returns a string")
        if self.key is not None and inspect.iscoroutinefunction(self.key):
            raise _invalid("key", self.key, "an ordinary function, not an async one")
        if self.lease is not None:
            if not isinstance(self.lease, timedelta):
                raise _invalid("lease", self.lease, "a datetime.timedelta")
            if not MIN_LEASE <= self.lease <= MAX_LEASE:
                raise _invalid("lease", self.lease, f"between {MIN_LEASE} and {MAX_LEASE}")
        if self.on_conflict not in ("wait", "fail"):
            raise _invalid("on_conflict", self.on_conflict, '"wait" or "fail"')


def check_name(argument: str, name: object) -> str:
    """Return `name` if it can name a lock.

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
    return name


def _invalid(argument: str, value: object, wanted: str) -> LockConfigurationError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return LockConfigurationError(f"needs_lock: {argument} must be {wanted}, not {shown}")


@overload
def needs_lock(fn: Target, /) -> Target: ...
@overload
def needs_lock(
    *,
    lock_name: str | None = None,
    max_locks: int = 1,
    key: Callable[..., str] | None = None,
    lease: timedelta | None = None,
    on_conflict: OnConflict = "wait",
) -> Callable[[Target], Target]: ...
def needs_lock(
    fn: Any = None,
    /,
    *,
    lock_name: str | None = None,
    max_locks: int = 1,
    key: Callable[..., str] | None = None,
    lease: timedelta | None = None,
    on_conflict: OnConflict = "wait",
) -> Any:
    """Tag an activity: at most `max_locks` executions hold the lock at once, over all workers.

    Only attaches metadata and returns the same object; `LockInterceptor`, passed to the ``Worker``, does
    the work. Goes above or below ``@activity.defn``, on functions, methods and classes with ``__call__``.
    Stacked, an activity takes several locks, all or none.

    Args:
        fn: the activity, when used without parentheses.
        lock_name: the lock's name, by default the activity type as registered.
        max_locks: how many may hold the lock at once; 1 makes it a mutex.
        key: from the activity's arguments to a string, one independent lock for each (per tenant, per
            connection, ...). It must depend on the arguments alone, since each attempt calls it again.
        lease: how long a dead worker's place stays taken, by default ``LOCK_LEASE_SECONDS``.
        on_conflict: ``"wait"`` in line, or ``"fail"`` at once with the non-retryable `LockBusy`.

    Raises:
        LockConfigurationError: an argument is invalid, or this is part of a workflow.
    """
    spec = LockSpec(lock_name, max_locks, key, lease, on_conflict)

    def attach(target: Target) -> Target:
        _attach(target, spec)
        return target

    return attach if fn is None else attach(fn)


def _attach(target: Any, spec: LockSpec) -> None:
    if isinstance(target, str):
        raise LockConfigurationError(f"needs_lock: write @needs_lock(lock_name={target!r})")
    # a staticmethod hands out its function, so that is where the mark has to be
    bearer = target.__func__ if isinstance(target, staticmethod | classmethod) else target
    if not callable(bearer):
        raise LockConfigurationError(f"needs_lock: {target!r} is not a function, method or class")
    described = getattr(bearer, "__qualname__", None) or repr(bearer)
    if part := _part_of_workflow(bearer):
        raise LockConfigurationError(
            f"needs_lock: {described} is {part}, and a workflow cannot hold a lock: tag the activity that "
            "does the work, and call it from the workflow"
        )
    own = vars(bearer).get(MARK, ()) if hasattr(bearer, "__dict__") else ()
    for other in own:
        _check_compatible(described, other, spec)
    try:
        # decorators apply from the bottom up; the tuple reads from the top down
        setattr(bearer, MARK, (spec, *own))
    except (AttributeError, TypeError):
        raise LockConfigurationError(
            f"needs_lock: {described} takes no attributes; tag the function before it is bound or wrapped"
        ) from None


def _check_compatible(described: str, one: LockSpec, other: LockSpec) -> None:
    if one.lock_name != other.lock_name:
        return
    name = "its own activity type" if one.lock_name is None else repr(one.lock_name)
    if one.key is other.key:
        raise LockConfigurationError(
            f"needs_lock: {described} asks for the lock {name} twice; once is enough, or give each a key"
        )
    if (one.max_locks, one.lease, one.on_conflict) != (other.max_locks, other.lease, other.on_conflict):
        raise LockConfigurationError(
            f"needs_lock: {described} asks for the lock {name} twice with different max_locks, lease or "
            "on_conflict; under one name these must agree"
        )


def _part_of_workflow(target: Any) -> str | None:
    """What part of a workflow this visibly is; ``@workflow.run`` above the mark comes too late to be seen."""
    marks = {name for name in getattr(target, "__dict__", {}) if name.startswith("__temporal_")}
    if inspect.isclass(target):
        members = [member for base in target.__mro__ for member in vars(base).values()]
        if "__temporal_workflow_definition" in marks or any(
            hasattr(member, "__temporal_workflow_run") for member in members
        ):
            return "a workflow class"
        return None
    if any(name.startswith("__temporal_workflow") for name in marks):
        return "a workflow method"
    if "__temporal_signal_definition" in marks:
        return "a workflow's signal handler"
    if "__temporal_query_definition" in marks:
        return "a workflow's query handler"
    return "a workflow's update handler" if hasattr(target, "_defn") else None


def read_specs(fn: Any) -> tuple[LockSpec, ...]:
    """The specs that `needs_lock` attached to a callable, whatever it is wrapped in; empty if none."""
    while True:
        specs = getattr(fn, MARK, None)
        if specs is None and not inspect.isroutine(fn) and not inspect.isclass(fn):
            # an instance whose class tags ``__call__``
            specs = getattr(getattr(type(fn), "__call__", None), MARK, None)  # noqa: B004 - the function
        if specs is not None:
            return tuple(specs)
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        else:
            return ()


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
        raise LockConfigurationError(
            f"{where} raised {type(error).__name__} for {len(args)} argument(s); it must accept the "
            "activity's arguments and return a string"
        ) from error
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
    return key
