"""Which locks an activity wants, once its arguments are known."""

from __future__ import annotations

from typing import Any

from lock_interceptor.settings import LockSettings
from lock_interceptor.spec import LockSpec, check_name, resolve_key
from lock_interceptor.store import Claim, LockId, waiter_id
from lock_interceptor.terms import Want, new_owner
from lock_interceptor.worker.attempt import ActivityAttempt
from lock_interceptor.worker.meters import Meters


def wanted(
    specs: tuple[LockSpec, ...],
    attempt: ActivityAttempt,
    args: tuple[Any, ...],
    settings: LockSettings,
    meters: Meters,
) -> list[Want]:
    """What this attempt asks for, each lock once.

    Raises:
        LockConfigurationError: the activity type is no name for a lock, or a key function failed.
    """
    wants: dict[LockId, Want] = {}
    kind, party = attempt.info.activity_type, attempt.party
    for spec in specs:
        name = (
            check_name("the activity type, as lock_name,", kind) if spec.lock_name is None else spec.lock_name
        )
        lock = LockId(settings.application_name, name, resolve_key(spec, kind, args))
        lease = spec.lease or settings.lease
        waiter = waiter_id(*attempt.identity, lock=lock)
        claim = Claim(
            lock=lock,
            owner=new_owner(waiter),
            waiter=waiter,
            limit=spec.max_locks,
            priority=attempt.priority,
            usual_lease=lease,
            party=party,
            metrics=meters.recorder(attempt.info, name),
        )
        # two keys of one name may come out equal: held once is held
        wants.setdefault(lock, Want(claim=claim, lease=lease, fail_fast=spec.on_conflict == "fail"))
    return list(wants.values())
