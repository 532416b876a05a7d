"""What an attempt wants, and what its requests for locks have in common.

Knows the store, and neither Redis nor Temporal.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from lock_interceptor import waiting as policy
from lock_interceptor.keeper import LeaseKeeper
from lock_interceptor.lease import clock
from lock_interceptor.places import BodyPlace
from lock_interceptor.room import WaitingRoom
from lock_interceptor.store import Claim, LockStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """One lock that an attempt needs."""

    claim: Claim
    lease: timedelta
    fail_fast: bool = False


class Attempt(Protocol):
    """What has to be known of the attempt."""

    started: float
    """Reading of the clock."""
    allowance: policy.Allowance
    check_every: float
    """Seconds after which `check` wants to be called again while waiting."""

    @property
    def waited(self) -> float:
        """Seconds since the activity was scheduled, for its first attempt."""

    def check(self) -> None:
        """Heartbeat if that is due, and raise if the attempt must not go on waiting."""

    def watch(self, notify: Callable[[], None]) -> contextlib.AbstractAsyncContextManager[None]:
        """While entered, call `notify` as soon as `check` has something to say."""

    def keeps_place(self) -> bool:
        """Whether another attempt may follow this one, which is being cancelled."""

    def cancelled(self) -> BaseException:
        """The error with which this attempt ends when it is cancelled before the body began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the requests of one attempt have in common."""

    store: LockStore
    keeper: LeaseKeeper
    room: WaitingRoom
    attempt: Attempt
    interval: float
    """Seconds between polls."""
    max_wait: float
    """Seconds that an attempt waits in the worker at most."""
    on_lost: Callable[[], None]
    """Called in the keeper's thread."""
    body: BodyPlace = field(default_factory=BodyPlace)
    """Where the body will run: one place, however many locks it needs."""

    @property
    def budget(self) -> float:
        """Seconds that this attempt may wait in the worker."""
        return policy.hot_budget(self.attempt.allowance, self.max_wait)

    @property
    def until_deadline(self) -> float:
        """Seconds until schedule-to-close."""
        return self.attempt.started + self.attempt.allowance.schedule_to_close - clock()


def new_owner(waiter: str) -> str:
    """An owner id: single-use, so that no late answer can be taken for another acquisition's.

    It begins like its waiter, so that an activity knows its own attempts among those who hold the lock.
    """
    return waiter[:16] + secrets.token_hex(8)
