"""`FaultyLockStore`: a lock store that is busy, loses locks or does not answer, when a test says so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal
from uuid import uuid4

from lock_interceptor.errors import LockStoreUnavailable
from lock_interceptor.lease import printable
from lock_interceptor.store import Claim, Granted, LockId, LockState, LockStore, Party, Queueing, Waiting
from lock_interceptor.testing.memory_store import InMemoryLockStore

Operation = Literal["acquire", "renew", "release", "park", "inspect", "check"]

FOREVER = timedelta(days=1)


@dataclass(eq=False)
class _Occupation:
    """Somebody else who takes what is free of a lock, as soon as anybody asks for it."""

    lock: str
    slots: int | None
    claims: dict[LockId, list[Claim]] = field(default_factory=dict)


@dataclass(eq=False)
class _Outage:
    operations: tuple[Operation, ...]
    after: bool

    def hits(self, operation: Operation) -> bool:
        return not self.operations or operation in self.operations


class FaultyLockStore:
    """A `LockStore` that passes everything on to another one, and misbehaves when told to.

    Locks are named as in `current_lease`: ``name`` stands for the lock of that name with any key,
    ``name[key]`` for the one with this key.

    Args:
        inner: the store that keeps the locks, by default an `InMemoryLockStore`.
    """

    def __init__(self, inner: LockStore | None = None) -> None:
        self.inner: LockStore = InMemoryLockStore() if inner is None else inner
        self._holding: dict[str, Claim] = {}
        self._occupations: list[_Occupation] = []
        self._outages: list[_Outage] = []

    # -- faults

    @contextlib.asynccontextmanager
    async def busy(self, lock: str, *, slots: int | None = None) -> AsyncIterator[None]:
        """While entered, somebody else holds the lock; on leaving, it is given back and waiters go on.

        Activities that hold it already go on holding it, and somebody else takes what they leave free.

        Args:
            lock: ``name`` or ``name[key]``.
            slots: how many slots to take, by default all that ``max_locks`` allows.
        """
        occupation = _Occupation(lock, slots)
        self._occupations.append(occupation)
        try:
            yield
        finally:
            self._occupations.remove(occupation)
            for claims in occupation.claims.values():
                for claim in claims:
                    await self.inner.release(claim)

    async def lose(self, lock: str) -> None:
        """Take the lock away from all who hold it now, as a Redis does that lost its memory.

        A holder hears of it at its next renewal, after a third of its lease: its body is stopped, and the
        attempt ends with `LockLost`.

        Args:
            lock: ``name`` or ``name[key]``.

        Raises:
            LookupError: nobody holds it, so the test would not test what it means to.
        """
        claims = list(self._holding.values())
        losing = [claim for claim in claims if _means(lock, claim.lock)]
        if not losing:
            held = ", ".join(sorted({str(claim.lock) for claim in claims})) or "nothing"
            raise LookupError(f"nobody holds {lock!r} who could lose it; held is {held}")
        for claim in losing:
            self._holding.pop(claim.owner, None)
            await self.inner.release(claim)

    @contextlib.contextmanager
    def unavailable(self, *operations: Operation, after: bool = False) -> Iterator[None]:
        """While entered, requests end with `LockStoreUnavailable`, as when Redis cannot be reached.

        Args:
            operations: which ones, such as ``"renew"``; by default all.
            after: let the store do what it was asked to, so that only its answer is lost.
        """
        outage = _Outage(operations, after)
        self._outages.append(outage)
        try:
            yield
        finally:
            self._outages.remove(outage)

    # -- the protocol

    async def acquire(
        self, claim: Claim, *, lease: timedelta, queueing: Queueing | None = None
    ) -> Granted | Waiting:
        """See `LockStore.acquire`."""
        self._fail("acquire", after=False)
        for occupation in list(self._occupations):
            if _means(occupation.lock, claim.lock):
                await self._occupy(occupation, claim)
        answer = await self.inner.acquire(claim, lease=lease, queueing=queueing)
        if isinstance(answer, Granted):
            self._holding[claim.owner] = claim
        self._fail("acquire", after=True)
        return answer

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """See `LockStore.renew`."""
        self._fail("renew", after=False)
        held = await self.inner.renew(claim, lease=lease)
        self._fail("renew", after=True)
        return held

    async def release(self, claim: Claim) -> bool:
        """See `LockStore.release`."""
        self._fail("release", after=False)
        held = await self.inner.release(claim)
        self._holding.pop(claim.owner, None)
        self._fail("release", after=True)
        return held

    async def park(self, claim: Claim, *, ticket: int = 0, keep: timedelta) -> None:
        """See `LockStore.park`."""
        self._fail("park", after=False)
        await self.inner.park(claim, ticket=ticket, keep=keep)
        self._holding.pop(claim.owner, None)
        self._fail("park", after=True)

    async def inspect(self, lock: LockId, *, waiters: int = 100) -> LockState:
        """See `LockStore.inspect`."""
        self._fail("inspect", after=False)
        state = await self.inner.inspect(lock, waiters=waiters)
        self._fail("inspect", after=True)
        return state

    def wakeups(self, claim: Claim) -> AbstractAsyncContextManager[asyncio.Event]:
        """See `LockStore.wakeups`."""
        return self.inner.wakeups(claim)

    async def check(self) -> None:
        """See `LockStore.check`."""
        self._fail("check", after=False)
        await self.inner.check()
        self._fail("check", after=True)

    async def close(self) -> None:
        """See `LockStore.close`."""
        await self.inner.close()

    async def _occupy(self, occupation: _Occupation, claim: Claim) -> None:
        """Take what is free, as one who does not overtake anybody."""
        claims = occupation.claims.setdefault(claim.lock, [])
        wanted = claim.limit if occupation.slots is None else min(occupation.slots, claim.limit)
        while len(claims) < wanted:
            party = Party(workflow="somebody-else", activity="somebody_else", activity_id="1", worker="test")
            other = Claim(
                lock=claim.lock, owner=uuid4().hex, waiter=uuid4().hex, limit=claim.limit, party=party
            )
            if not isinstance(await self.inner.acquire(other, lease=FOREVER), Granted):
                return
            if occupation not in self._occupations:  # it ended meanwhile
                await self.inner.release(other)
                return
            claims.append(other)

    def _fail(self, operation: Operation, *, after: bool) -> None:
        if any(outage.after is after and outage.hits(operation) for outage in list(self._outages)):
            lost = "answer" if after else "request"
            raise LockStoreUnavailable(f"FaultyLockStore: the {lost} of {operation} was lost, as told")


def _means(lock: str, found: LockId) -> bool:
    return lock == found.name or printable(lock) == str(found)
