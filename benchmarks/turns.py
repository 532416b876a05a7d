"""Who takes turns at one lock: crowds of waiters, ours and others', whose bodies note when they ran."""

import asyncio
import contextlib
import importlib
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import redis
from contestants import LEASE_MS, new_claim, settings_for
from waiters import Line

from lock_interceptor import LockSettings
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.store import Claim, Granted, Waiting

Turn = tuple[str, float, float]
"""Who had it, from when until when; by the monotonic clock, which the processes of a machine share."""


@dataclass
class Crowd:
    """Members that take turns until told to stop."""

    name: ClassVar[str]
    url: str
    lock: str
    members: int
    seconds: float
    """How long a body takes."""
    label: str = ""
    turns: list[Turn] = field(default_factory=list)
    stopping: bool = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All members take turns; at the end each has at most one more, an empty one."""
        raise NotImplementedError
        yield

    def note(self, member: int, began: float) -> None:
        self.turns.append((f"{self.label}{member}", began, time.monotonic()))


class _TaskCrowd(Crowd):
    """Tasks of one event loop."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.open()
        tasks = [asyncio.create_task(self._member(member)) for member in range(self.members)]
        try:
            yield
        finally:
            self.stopping = True
            await asyncio.gather(*tasks)
            await self.close()

    async def _member(self, member: int) -> None:
        async def body() -> None:
            if not self.stopping:
                began = time.monotonic()
                await asyncio.sleep(self.seconds)
                self.note(member, began)

        while not self.stopping:
            await self.turn(body)

    async def open(self) -> None:
        raise NotImplementedError

    async def turn(self, body: Any) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class OurCrowd(_TaskCrowd):
    """All of `lock_interceptor` but Temporal."""

    name = "lock_interceptor"

    async def open(self) -> None:
        self._line = Line(settings_for(self.url))

    async def turn(self, body: Any) -> None:
        await self._line.run(new_claim(self.lock), body)

    async def close(self) -> None:
        await self._line.close()


class NotingStore(RedisLockStore):
    """Notes when the requests of a hand-over were made and answered."""

    def __init__(self, settings: LockSettings) -> None:
        super().__init__(settings)
        self.released: dict[str, float] = {}
        """When each claim's lock began to be given back."""
        self.granted: list[tuple[float, float, str]] = []
        """When a request that was granted was made and answered, and whose."""

    async def release(self, claim: Claim) -> bool:
        self.released[claim.owner] = time.monotonic()
        return await super().release(claim)

    async def acquire(self, claim: Claim, **how: Any) -> Granted | Waiting:
        asked = time.monotonic()
        answer = await super().acquire(claim, **how)
        if isinstance(answer, Granted):
            self.granted.append((asked, time.monotonic(), claim.owner))
        return answer


class NotingCrowd(OurCrowd):
    """Ours, with notes of the steps of each hand-over."""

    async def open(self) -> None:
        self._line = Line(settings_for(self.url), kind=NotingStore)

    def parts(self) -> Iterator[dict[str, float]]:
        """For each hand-over, the seconds of its parts, in order."""
        store = self._line.store
        assert isinstance(store, NotingStore)
        turns = sorted(self.turns, key=lambda turn: turn[1])
        grants = sorted(store.granted)
        for (turn, following), (before, grant) in zip(pairwise(turns), pairwise(grants), strict=False):
            released = store.released[before[2]]
            yield {
                "to the request that gives back": released - turn[2],
                # one that was just asking by itself need not be told
                "until the next one asks": max(grant[0] - released, 0.0),
                "the request of the next": grant[1] - grant[0],
                "to the body": following[1] - grant[1],
            }


class FloorCrowd(_TaskCrowd):
    """A token in a list: the server hands it to who has been blocking on it for longest.

    The shortest hand-over that Redis has. Not a lock: the token of one who dies is gone.
    """

    name = "floor"

    async def open(self) -> None:
        self._client = redis.asyncio.Redis.from_url(
            self.url, protocol=2, socket_timeout=None, max_connections=2000
        )
        await self._client.rpush(self.lock, "token")

    async def turn(self, body: Any) -> None:
        await self._client.blpop([self.lock], timeout=0)
        try:
            await body()
        finally:
            await self._client.rpush(self.lock, "token")

    async def close(self) -> None:
        await self._client.delete(self.lock)
        await self._client.aclose()


class RedisPyCrowd(_TaskCrowd):
    """The lock of redis-py, asyncio, as it comes."""

    name = "redis-py Lock"

    async def open(self) -> None:
        self._client = redis.asyncio.Redis.from_url(
            self.url, protocol=2, socket_timeout=None, max_connections=2000
        )

    async def turn(self, body: Any) -> None:
        async with self._client.lock(self.lock, timeout=LEASE_MS / 1000):
            await body()

    async def close(self) -> None:
        await self._client.aclose()


class PythonRedisLockCrowd(Crowd):
    """python-redis-lock, in threads."""

    name = "python-redis-lock"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        library = importlib.import_module("redis_lock")
        client = redis.Redis.from_url(self.url, protocol=2, socket_timeout=None, max_connections=2000)

        def go(member: int) -> None:
            while not self.stopping:
                held = library.Lock(client, self.lock, expire=LEASE_MS // 1000)
                if not held.acquire(timeout=1):
                    continue
                if not self.stopping:
                    began = time.monotonic()
                    time.sleep(self.seconds)
                    self.note(member, began)
                held.release()

        threads = [threading.Thread(target=go, args=(member,)) for member in range(self.members)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping = True
            for thread in threads:
                await asyncio.to_thread(thread.join)
            client.close()


class OtherProcess(Crowd):
    """Our crowd in a process of its own."""

    name = "lock_interceptor"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        words = [self.url, self.lock, str(self.members), str(self.seconds), self.label]
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(Path(__file__)), *words,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            await process.stdout.readline()
            yield
        finally:
            out, _ = await process.communicate(b"")
            self.turns += [(str(who), began, ended) for who, began, ended in json.loads(out)]


async def _in_this_process(url: str, lock: str, members: str, seconds: str, label: str) -> None:
    import logging  # noqa: PLC0415 - only where this is a program

    import structlog  # noqa: PLC0415

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    crowd = OurCrowd(url, lock, int(members), float(seconds), label)
    async with crowd.running():
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(crowd.turns))


if __name__ == "__main__":
    asyncio.run(_in_this_process(*sys.argv[1:]))
