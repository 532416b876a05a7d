"""`LockStore`: what keeps the locks, as a protocol; the contract stands in its docstrings.

`lock_interceptor.redis_store.RedisLockStore` is the real one, `lock_interceptor.testing.InMemoryLockStore`
the one for tests. Both are held to the same tests.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from lock_interceptor.lease import label, printable
from lock_interceptor.metrics import SILENT, Recorder

DEFAULT_PRIORITY = 3
"""What Temporal takes for a task without a ``priority_key``."""


@dataclass(frozen=True, slots=True, order=True)
class LockId:
    """Which lock: an application's name for it and, for one of many, the key."""

    application: str
    name: str
    key: str | None = field(default=None, compare=False)
    # None does not sort against str; the empty key cannot be made by users, so it stands for "no key"
    sort_key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sort_key", self.key or "")

    def __str__(self) -> str:
        return label(self.name, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """Who holds or waits, for people. Never needed for correctness."""

    workflow: str = ""
    """Workflow id; empty for a standalone activity."""
    workflow_type: str = ""
    activity: str = ""
    """Activity type."""
    activity_id: str = ""
    attempt: int = 1
    """A later one takes over the place in line; an earlier one that is still there changes nothing of it."""
    worker: str = ""
    """Identity of the worker."""
    since: int = 0
    """When the activity was scheduled, in seconds since 1970; 0 if that is not known."""

    def __post_init__(self) -> None:
        # whoever starts a workflow chooses its id, and terminals obey what they are shown
        for name, value in self.as_dict().items():
            if isinstance(value, str):
                object.__setattr__(self, name, printable(value))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for logs; when it began is known there."""
        # not asdict(), which copies deeply what is flat: each attempt does this several times
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "since"}

    def __str__(self) -> str:
        where = f"workflow {self.workflow}, " if self.workflow else ""
        return f"{where}activity {self.activity} ({self.activity_id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One acquisition of one lock: all operations name it.

    `owner` is single-use, made for this acquisition, and what all ownership is judged by. `waiter` is the
    activity execution, the same for all its attempts: the place in line belongs to it. An owner that begins
    with the first 16 characters of its waiter is known as one of its attempts by who asks without queueing.
    """

    lock: LockId
    owner: str
    waiter: str
    limit: int
    priority: int = DEFAULT_PRIORITY
    """Lower goes first, 1 to 9; before the time of arrival."""
    usual_lease: timedelta = timedelta(0)
    """How long a lease of this lock usually is, where a request asks for less because its deadline is near.

    A grant that a failover made the store forget may last as long.
    """
    party: Party = Party()
    metrics: Recorder = field(default=SILENT, compare=False, repr=False)
    """Counts what happens to this lock, also in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queueing:
    """How a claim that is not granted at once stands in line."""

    presence: timedelta | None
    """The waiter counts as present for this long; it has to ask again before then.

    None: it stands in line parked and is not granted the lock, since it could not make use of it now.
    """
    keep: timedelta
    """Its place is kept for this long, present or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The claim holds the lock."""

    token: int
    slot: int
    ticket: int = 0
    """The place in line that the grant used up, to give to `LockStore.park`; 0 if there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The claim does not hold the lock."""

    place: int
    """Place in line among those present, 1 is next."""
    ahead: int
    """How many are before it in all, parked ones included."""
    held: int
    """How many hold the lock."""
    mean_hold: timedelta | None = None
    """Running mean of how long a holder keeps the lock, slow to rise and quick to fall: rather too short than
    too long. None while nobody has released yet."""
    next_expiry: timedelta | None = None
    """Until the nearest lease ends if nobody renews it; None if nobody holds the lock."""
    settling: timedelta | None = None
    """After a failover or restart nothing is granted for so long, since a grant may have been forgotten."""
    holders: tuple[HolderState, ...] = ()
    """The three that have held it longest."""
    ticket: int = 0
    """What the line is sorted by, lower first; 0 if the claim does not stand in it."""
    own: int = 0
    """How many of those who hold it are attempts of the same waiter. Told to one that does not queue."""
    own_expiry: timedelta | None = None
    """Until the first of their leases ends if nobody renews it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderState:
    """One live holder."""

    owner: str
    token: int
    slot: int
    lease_left: timedelta
    held_for: timedelta
    party: Party


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiterState:
    """One waiter, in order."""

    waiter: str
    present: bool
    """In a worker and asking (True), or parked between attempts (False)."""
    party: Party


@dataclass(frozen=True, slots=True, kw_only=True)
class LockState:
    """All that is known of one lock at one moment."""

    holders: tuple[HolderState, ...] = ()
    """In the order of their slots."""
    waiters: tuple[WaiterState, ...] = ()
    """In the order of their tickets, at most the number asked for."""
    waiting: int = 0
    """How many wait in all."""


@runtime_checkable
class LockStore(Protocol):
    """Keeps locks. Every operation is atomic, and idempotent for one claim.

    All methods may be called from any running event loop: connections belong to the loop that uses them.
    Each sends at most one request, or one more when the server asks for the script's text, and does not
    retry: the caller knows how much time it has.

    Raises (all methods):
        LockStoreUnavailable: no answer in time, or "try again later". The operation may have happened;
            repeat it with the same claim.
        LockConfigurationError: the store refuses for good: wrong password, missing right, TLS mismatch.
    """

    async def acquire(
        self, claim: Claim, *, lease: timedelta, queueing: Queueing | None = None
    ) -> Granted | Waiting:
        """Take the lock if one of its slots is free and nobody present is before this claim.

        A claim that holds the lock gets the same token and slot again, and a new lease from now. The
        ticket of a waiter is kept from its first call until it is granted, leaves, or `queueing.keep` is
        over. Without `queueing` nothing is queued, and nobody in line is overtaken. With a `queueing`
        without presence the claim stands in line parked and is not granted the lock; one that holds it, which
        an answer that got lost may hide, is told so.

        Two attempts of a waiter may ask in turn, when the earlier one was stalled: the place is theirs for as
        long as one of them is present. A grant to one leaves it to the other.
        """
        ...

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """Let the lease end `lease` from now. False if the claim holds nothing (any more): that is final."""
        ...

    async def release(self, claim: Claim) -> bool:
        """Give back what the claim holds or, if that is nothing, leave the line.

        Then as many waiters are woken as there are free slots. False if it held nothing. Creates nothing,
        and touches no other claim; not even the place in which another attempt of its waiter stands.
        """
        ...

    async def park(self, claim: Claim, *, ticket: int = 0, keep: timedelta) -> None:
        """Step aside but keep the place for `keep`.

        Gives back what the claim holds, and stays in line without being considered for a grant until the
        waiter asks again, or as another attempt of it is present. A place that a grant used up comes back;
        `ticket`, from `Granted`, says which it was in case the store has forgotten the grant. Of two places
        the waiter keeps the one further ahead.
        """
        ...

    async def inspect(self, lock: LockId, *, waiters: int = 100) -> LockState:
        """Look without touching."""
        ...

    def wakeups(self, claim: Claim) -> AbstractAsyncContextManager[asyncio.Event]:
        """While entered, the event is set when asking again may pay.

        That is when a slot is free and the waiter among those next, or when a wake-up may have been missed.
        Best effort: it only lowers latency. Polling guarantees progress.
        """
        ...

    async def check(self) -> None:
        """Ask the store whether it would serve us, so that a mistake is found at the start."""
        ...

    async def close(self) -> None:
        """Close the connections of the calling loop. The store can be used again afterwards."""
        ...


def waiter_id(*parts: str, lock: LockId) -> str:
    """One name, of fixed length, for an activity execution's place in one lock's line."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (*parts, lock.application, lock.name, lock.sort_key):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()
