"""A lock on a store under a clock that the test moves, and short words to use it with."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from servers import command
from virtual_time import Clock, VirtualTimeStore

from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.settings import LockSettings
from lock_interceptor.store import Claim, Granted, LockId, LockState, LockStore, Queueing, Waiting

LEASE = 30.0
PRESENCE = 15.0
KEEP = 600.0
_PATIENCE = 10.0


class Bench:
    """One lock, its store and its clock. All durations are seconds."""

    def __init__(self, store: LockStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.lock = LockId("tests", f"lock-{uuid4()}")

    def claim(self, owner: str, waiter: str = "", *, limit: int = 1, **more: Any) -> Claim:
        """Make a claim; its waiter is named after its owner unless said."""
        return Claim(lock=self.lock, owner=owner, waiter=waiter or f"for-{owner}", limit=limit, **more)

    async def ask(
        self, claim: Claim, *, lease: float = LEASE, presence: float = PRESENCE, keep: float = KEEP
    ) -> Granted | Waiting:
        """Acquire, or stand in line."""
        queueing = Queueing(presence=timedelta(seconds=presence), keep=timedelta(seconds=keep))
        return await self.store.acquire(claim, lease=timedelta(seconds=lease), queueing=queueing)

    async def hold(self, claim: Claim, **durations: float) -> Granted:
        """Acquire, which has to succeed."""
        answer = await self.ask(claim, **durations)
        assert isinstance(answer, Granted), answer
        return answer

    async def wait(self, claim: Claim, **durations: float) -> Waiting:
        """Acquire, which has to end in line."""
        answer = await self.ask(claim, **durations)
        assert isinstance(answer, Waiting), answer
        return answer

    async def stand_parked(self, claim: Claim) -> Waiting:
        """Stand in line without being granted the lock."""
        answer = await self.store.acquire(claim, **self.parked())
        assert isinstance(answer, Waiting), answer
        return answer

    def parked(self) -> dict[str, Any]:
        """How to ask for no more than a place in line."""
        queueing = Queueing(presence=None, keep=timedelta(seconds=KEEP))
        return {"lease": timedelta(seconds=LEASE), "queueing": queueing}

    async def try_once(self, claim: Claim) -> bool:
        """Acquire without standing in line."""
        answer = await self.store.acquire(claim, lease=timedelta(seconds=LEASE))
        return isinstance(answer, Granted)

    async def renew(self, claim: Claim, lease: float = LEASE) -> bool:
        """Renew."""
        return await self.store.renew(claim, lease=timedelta(seconds=lease))

    async def release(self, claim: Claim) -> bool:
        """Release."""
        return await self.store.release(claim)

    async def park(self, claim: Claim, *, ticket: int = 0, keep: float = KEEP) -> None:
        """Park."""
        await self.store.park(claim, ticket=ticket, keep=timedelta(seconds=keep))

    async def look(self, waiters: int = 100) -> LockState:
        """Inspect."""
        return await self.store.inspect(self.lock, waiters=waiters)

    async def owners(self) -> list[str]:
        """Who holds, in the order of the slots."""
        return [holder.owner for holder in (await self.look()).holders]

    async def line(self) -> list[str]:
        """Who waits, in order."""
        return [waiter.waiter for waiter in (await self.look()).waiters]

    @contextlib.asynccontextmanager
    async def listening(self, *claims: Claim) -> AsyncIterator[dict[str, asyncio.Event]]:
        """Hear wake-ups from now on: the events by owner, none of them set."""
        async with contextlib.AsyncExitStack() as stack:
            events = {}
            for claim in claims:
                event = events[claim.owner] = await stack.enter_async_context(self.store.wakeups(claim))
                await asyncio.wait_for(event.wait(), _PATIENCE)  # each begins with "perhaps you missed one"
            for event in events.values():
                event.clear()
            yield events

    async def woken(self, events: dict[str, asyncio.Event]) -> set[str]:
        """Owners woken since the last look; wake-ups arrive in order, so one more ends the wait for them."""
        fence = Bench(self.store, self.clock)
        holder, waiter = fence.claim("holder"), fence.claim("waiter")
        await fence.hold(holder)
        await fence.wait(waiter)
        async with fence.listening(waiter) as last:
            await fence.release(holder)
            await asyncio.wait_for(last["waiter"].wait(), _PATIENCE)
        woken = {owner for owner, event in events.items() if event.is_set()}
        for event in events.values():
            event.clear()
        return woken


class RedisBench(Bench):
    """The same on a Redis server, with a look at what is really stored."""

    def __init__(self, store: LockStore, clock: Clock, server: RedisServer) -> None:
        super().__init__(store, clock)
        self.server = server

    @property
    def key(self) -> str:
        """The lock's key."""
        return lock_key("lock", self.lock)

    def redis(self, *words: object) -> Any:
        """Send the server a command."""
        return command(self.server, *words)

    def members(self) -> dict[str, int]:
        """Everything in the lock's key."""
        flat: Iterable[Any] = iter(self.redis("ZRANGE", self.key, 0, -1, "WITHSCORES"))
        return {member: int(score) for member, score in zip(flat, flat, strict=True)}

    def forget_epoch(self) -> None:
        """Make the lock look as if another primary had granted it last, as it does after a failover."""
        for member in self.members():
            if member.startswith("@"):
                self.redis("ZREM", self.key, member)
        self.redis("ZADD", self.key, "-9e15", "@" + "0" * 40)


def store_on(server: RedisServer, clock: Clock, **settings: Any) -> VirtualTimeStore:
    """A store on this server under this clock."""
    return VirtualTimeStore(LockSettings(redis_url=server.url, **settings), clock)
