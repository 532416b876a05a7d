"""What a locked activity sees while locking is disabled: leases that never end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from temporalio import activity
from temporalio.worker import ExecuteActivityInput

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.lease import held_leases
from lock_interceptor.spec import LockSpec, resolve_key
from lock_interceptor.worker.bodies import carrying, unlocked_lease


@contextlib.contextmanager
def showing_leases(
    specs: tuple[LockSpec, ...], input: ExecuteActivityInput
) -> Iterator[ExecuteActivityInput]:
    """While entered, `current_lease` works although locking is disabled."""
    kind = activity.info().activity_type
    locks = dict.fromkeys(_unlocked(spec, kind, tuple(input.args)) for spec in specs)
    leases = tuple(unlocked_lease(name, key) for name, key in locks)
    token = held_leases.set(leases)
    try:
        yield carrying(input, leases)
    finally:
        held_leases.reset(token)


def _unlocked(spec: LockSpec, kind: str, args: tuple[Any, ...]) -> tuple[str, str | None]:
    key = None
    # a key function that does not work may be the reason why there are no locks
    with contextlib.suppress(LockConfigurationError):
        key = resolve_key(spec, kind, args)
    return spec.lock_name or kind, key
