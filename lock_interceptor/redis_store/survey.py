"""A look at all locks, for operators: found by ``SCAN`` in small steps, and counted by a script in batches.

No request takes Redis more than a moment, however many locks there are, and nothing is changed but by
`LockSurvey.revoke`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import AskError, ClusterDownError, MovedError, TryAgainError

from lock_interceptor.errors import LockStoreUnavailable
from lock_interceptor.redis_store import scripts
from lock_interceptor.redis_store.connection import Connections, address
from lock_interceptor.redis_store.errors import translated
from lock_interceptor.redis_store.keys import key_pattern, lock_key, read_key
from lock_interceptor.redis_store.records import decode_state, duration, waits_since
from lock_interceptor.settings import LockSettings
from lock_interceptor.store import LockId, LockState

SCAN_STEP = 500
"""Keys that one ``SCAN`` goes through, about: some hundred microseconds."""
BATCH = 100
"""Locks that are counted in one round trip."""
_MOVING = (MovedError, AskError, TryAgainError, ClusterDownError)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockCounts:
    """One lock at one moment, in numbers."""

    redis_key: str
    lock: LockId
    held: int
    waiting: int
    """All in line, parked ones included."""
    present: int
    """Those of them that wait in a worker."""
    limit: int | None = None
    """As last asked for; None if nobody has noted it."""
    mean_hold: timedelta | None = None
    settling: timedelta | None = None
    """For so long nothing is granted, after a failover or restart."""
    longest_hold: timedelta | None = None
    """For how long the first of the holders has held it."""
    longest_wait: timedelta | None = None
    """For how long the first of those in line have been waiting; None if their records do not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockDetails:
    """One lock with those who hold it and wait for it."""

    counts: LockCounts
    state: LockState


class LockSurvey:
    """Finds locks and looks at them. Use it in one event loop, and close it."""

    def __init__(self, settings: LockSettings) -> None:
        """Prepare; nothing is connected before the first call.

        Raises:
            LockConfigurationError: ``REDIS_URL`` has a part that is unknown or does not fit.
        """
        self.address = address(settings)
        self._prefix = settings.key_prefix
        self._connections = Connections(settings)
        self.unreachable: list[str] = []
        """Nodes of a Cluster that did not answer in the last search: their locks are missing."""

    async def find(
        self, application: str | None = None, wanted: Callable[[LockId], bool] = bool
    ) -> AsyncGenerator[list[LockCounts], None]:
        """Go through the locks, of one application or of all, and count those that are wanted.

        A lock that comes or goes meanwhile may be missed, and no lock comes twice. Batches may be empty:
        each is a sign of progress.

        Raises:
            LockStoreUnavailable: no answer in time.
            LockConfigurationError: Redis refuses.
        """
        pattern, seen = key_pattern(self._prefix, application), set[str]()
        self.unreachable = []
        async for where, server in self._servers():
            try:
                async for keys in self._scan(server, pattern):
                    locks = [
                        (key, lock)
                        for key, lock in self._new(keys, seen)
                        if lock.name and wanted(lock)  # the one without a name is a store's check
                    ]
                    for start in range(0, len(locks), BATCH) or (0,):
                        yield await self._count(server, locks[start : start + BATCH])
            except LockStoreUnavailable:
                if not where:
                    raise
                self.unreachable.append(where)

    async def look(self, redis_key: str, *, waiters: int = 20) -> LockDetails | None:
        """Look at one lock; None if there is no such key.

        Raises:
            LockStoreUnavailable: no answer in time.
            LockConfigurationError: Redis refuses.
        """
        lock = read_key(self._prefix, redis_key)
        state = decode_state(await self._run("inspect", redis_key, waiters))
        counts = _counts(redis_key, lock or LockId("", redis_key), await self._run("survey", redis_key))
        there = state.holders or state.waiting or counts.mean_hold is not None
        return LockDetails(counts=counts, state=state) if there else None

    async def revoke(self, redis_key: str, *, token: int, limit: int | None) -> bool:
        """Take a lock away from the holder with this token; False if there is none (any more).

        Raises:
            LockStoreUnavailable: no answer in time; it may have happened, and may be repeated.
            LockConfigurationError: Redis refuses.
        """
        return bool(await self._run("revoke", redis_key, token, limit or 0))

    def key_of(self, lock: LockId) -> str:
        """The key of a lock."""
        return lock_key(self._prefix, lock)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def _run(self, name: str, redis_key: str, *args: int) -> Any:
        with translated(self.address):
            async with self._connections.use() as client:
                return await cast("Any", client).execute_command(
                    "EVAL", scripts.load(name).text, 1, redis_key, *args
                )

    async def _servers(self) -> AsyncIterator[tuple[str, Redis]]:
        """The primaries of a Cluster by name, or the only server, without one."""
        with translated(self.address):
            async with self._connections.use() as client:
                pass
        if not isinstance(client, RedisCluster):
            yield "", client
            return
        for node in client.get_primaries():
            async with self._connections.at(str(node.host), int(node.port)) as server:
                yield str(node.name), server

    async def _scan(self, server: Redis, pattern: str) -> AsyncIterator[list[str]]:
        cursor = 0
        while True:
            words = ("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_STEP, "TYPE", "zset")
            with translated(self.address):
                async with self._connections.use():
                    position, keys = await cast("Any", server).execute_command(*words)
            yield keys
            cursor = int(position)
            if cursor == 0:
                return

    def _new(self, keys: Sequence[str], seen: set[str]) -> Iterator[tuple[str, LockId]]:
        """``SCAN`` may return a key more than once, and two nodes may when a slot is moved between them."""
        for key in keys:
            lock = read_key(self._prefix, key)
            if lock is not None and key not in seen:
                seen.add(key)
                yield key, lock

    async def _count(self, server: Redis, locks: Sequence[tuple[str, LockId]]) -> list[LockCounts]:
        if not locks:
            return []
        script = scripts.load("survey")
        pipeline: Any = server.pipeline(transaction=False)
        for number, (key, _) in enumerate(locks):
            # the first carries the text, so that the server knows it for the others
            words = ("EVALSHA", script.digest) if number else ("EVAL", script.text)
            pipeline.execute_command(*words, 1, key)
        with translated(self.address):
            async with self._connections.use():
                answers = await pipeline.execute(raise_on_error=False)
        counts = []
        for (key, lock), answer in zip(locks, answers, strict=True):
            if isinstance(answer, _MOVING):
                with contextlib.suppress(LockStoreUnavailable):  # not to be had while it is moved
                    counts.append(_counts(key, lock, await self._run("survey", key)))
                continue
            with translated(self.address):
                if isinstance(answer, Exception):
                    raise answer
            counts.append(_counts(key, lock, answer))
        return counts


def _counts(redis_key: str, lock: LockId, answer: list[Any]) -> LockCounts:
    now, held, waiting, present, mean, limit, grace, token, foremost = answer
    since = [each for each in map(waits_since, foremost) if each is not None]
    return LockCounts(
        redis_key=redis_key,
        lock=lock,
        held=held,
        waiting=waiting,
        present=present,
        limit=limit if limit > 0 else None,
        mean_hold=duration(mean),
        settling=duration(grace or -1),
        longest_hold=duration(max(now - token // 1000, 0)) if token > 0 else None,
        longest_wait=duration(max(round(now - min(since) * 1000), 0)) if since else None,
    )
