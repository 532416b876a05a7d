"""`needs_lock`, and how what it attached is read off any callable.

Needs the standard library only, because workflow files import activity modules.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar, overload

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.spec import LockSpec, OnConflict

MARK = "__lock_interceptor_specs__"
MAX_LAYERS = 100
"""Some objects, such as mocks, claim to wrap another one without end."""

Target = TypeVar("Target", bound=Callable[..., Any])


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
    if isinstance(target, str | int) and not isinstance(target, bool):
        argument = "lock_name" if isinstance(target, str) else "max_locks"
        raise LockConfigurationError(f"needs_lock: write @needs_lock({argument}={target!r})")
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
    if inspect.isclass(bearer) and not any("__call__" in vars(base) for base in bearer.__mro__):
        raise LockConfigurationError(
            f"needs_lock: class {described} has no __call__, so it is not an activity: tag the methods "
            "that are"
        )
    own = _specs_to_stack_on(bearer)
    for other in own:
        _check_compatible(described, other, spec)
    try:
        # decorators apply from the bottom up; the tuple reads from the top down
        setattr(bearer, MARK, (spec, *own))
    except (AttributeError, TypeError):
        raise LockConfigurationError(
            f"needs_lock: {described} takes no attributes; tag the function before it is bound or wrapped"
        ) from None


def _specs_to_stack_on(bearer: Any) -> tuple[LockSpec, ...]:
    """What has been asked for already; a class that is tagged itself does not ask for its base's locks."""
    if not inspect.isclass(bearer):
        return read_specs(bearer)
    return vars(bearer).get(MARK) or read_specs(bearer.__call__)


def _check_compatible(described: str, one: LockSpec, other: LockSpec) -> None:
    # with and without a key they are different locks: a limit for all, and one for each tenant
    if one.lock_name != other.lock_name or (one.key is None) != (other.key is None):
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
    if inspect.isclass(target):
        members = [member for base in target.__mro__ for member in vars(base).values()]
        is_workflow = any(hasattr(member, "__temporal_workflow_run") for member in members)
        return "a workflow class" if is_workflow else None
    marks = tuple(getattr(target, "__dict__", ()))
    if any(name.startswith("__temporal_workflow") for name in marks):
        return "a workflow method"
    if "__temporal_signal_definition" in marks:
        return "a workflow's signal handler"
    if "__temporal_query_definition" in marks:
        return "a workflow's query handler"
    # an update has no mark with Temporal's name
    return "a workflow's update handler" if {"_defn", "validator"}.issubset(marks) else None


def layers(fn: Any) -> Iterator[Any]:
    """A callable and what it wraps, from the outside in."""
    for _ in range(MAX_LAYERS):
        yield fn
        call = getattr(type(fn), "__call__", None)  # noqa: B004 - the function
        if inspect.isfunction(call) and not inspect.isclass(fn):
            yield from layers(call)  # an instance is as locked as its class's ``__call__``
        if isinstance(fn, functools.partial | functools.partialmethod):
            fn = fn.func
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        else:
            return


def read_specs(fn: Any) -> tuple[LockSpec, ...]:
    """The specs that `needs_lock` attached to a callable, whatever it is wrapped in; empty if none."""
    return next((tuple(getattr(layer, MARK)) for layer in layers(fn) if hasattr(layer, MARK)), ())
