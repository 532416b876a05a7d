"""Where the state machine lives: the model, both servers under its clock, and what owners believe."""

import asyncio
import collections
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import redis
from lock_records import is_exact
from model_store import ModelStore
from store_cases import store_on
from virtual_time import Clock

from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.store import Claim, LockId, LockStore, Queueing

Members = dict[str, int]
Stored = list[tuple[Members, int]]
"""The records of the lock, and how many ms its key lives on, on each server."""

REAL_MS = 5_000
"""A key lives at least so long, by real time, so that a slow machine does not decide what is there."""


@dataclass(frozen=True)
class Call:
    """One request to a store."""

    what: str
    """acquire, renew, release or park"""
    claim: Claim
    lease_ms: int = 0
    queueing: Queueing | None = None
    ticket: int = 0

    async def on(self, store: LockStore) -> Any:
        """Send it."""
        lease = timedelta(milliseconds=self.lease_ms)
        if self.what == "acquire":
            return await store.acquire(self.claim, lease=lease, queueing=self.queueing)
        if self.what == "renew":
            return await store.renew(self.claim, lease=lease)
        if self.what == "release":
            return await store.release(self.claim)
        return await store.park(self.claim, ticket=self.ticket, keep=timedelta(seconds=20))


class World:
    """The stores, the servers behind them, and what has happened on them in the whole run."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], servers: list[RedisServer]) -> None:
        self.clock = Clock()
        self.memory = ModelStore(self.clock)
        self.stores: list[LockStore] = [self.memory, *(store_on(server, self.clock) for server in servers)]
        self.servers = [redis.Redis(port=server.port, decode_responses=True) for server in servers]
        self.run = run
        self.seen: collections.Counter[str] = collections.Counter()

    def close(self) -> None:
        """Close all connections."""
        for store in self.stores:
            self.run(store.close())
        for server in self.servers:
            server.close()

    def ask(self, operation: Callable[[LockStore], Coroutine[Any, Any, Any]]) -> list[Any]:
        """What each store answers."""
        return self.run(_answers(self.stores, operation))

    def read(self, lock: LockId) -> Stored:
        """What the servers have of a lock."""
        found = []
        for server in self.servers:
            pipeline, key = server.pipeline(transaction=False), lock_key("lock", lock)
            members, ttl = pipeline.zrange(key, 0, -1, withscores=True).pttl(key).execute()
            assert all(is_exact(score) for _, score in members)
            # the keys live in real time: what passes between two requests must not decide what comes next
            whole = ttl if ttl < 0 else -(-ttl // 1000) * 1000
            found.append(({member: int(score) for member, score in members}, whole))
        return found

    def write(self, lock: LockId, stored: Stored) -> None:
        """Let the servers have this of a lock, and nothing else."""
        for server, (members, ttl) in zip(self.servers, stored, strict=True):
            pipeline, key = server.pipeline(), lock_key("lock", lock)
            pipeline.delete(key)
            if members:
                pipeline.zadd(key, members).pexpire(key, max(ttl, REAL_MS))
            pipeline.execute()

    def outlive(self, lock: LockId, stored: Stored) -> Stored:
        """Let keys live so long, since their time is not the one that the clock tells."""
        for server, (_, ttl) in zip(self.servers, stored, strict=True):
            server.pexpire(lock_key("lock", lock), max(ttl, REAL_MS))
        return stored


async def _answers(
    stores: list[LockStore], operation: Callable[[LockStore], Coroutine[Any, Any, Any]]
) -> list[Any]:
    return await asyncio.gather(*map(operation, stores))


class Beliefs:
    """Until when each owner takes the lock for its own, by a clock that never steps."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.unsure_until = 0
        """A belief may be forgotten by then without anything that could tell."""
        self._ends: dict[str, int] = {}

    def begin(self, owner: str, lease_ms: int) -> None:
        """It was granted, or renewed."""
        self._ends[owner] = self.now_ms + lease_ms

    def end(self, owner: str) -> None:
        """It gave back, or was told that the lease is lost."""
        self._ends.pop(owner, None)

    def live(self) -> dict[str, int]:
        """Ms left to those that believe."""
        return {owner: ends - self.now_ms for owner, ends in self._ends.items() if ends > self.now_ms}

    def forgotten(self, lost: dict[str, int]) -> None:
        """Nothing reminds the servers of these."""
        self.unsure_until = max(self.unsure_until, self.now_ms + max(lost.values(), default=0))

    @property
    def sure(self) -> bool:
        """Whether nobody believes who might have been forgotten."""
        return self.now_ms >= self.unsure_until
