"""Locks in Redis to measure against each other: ours, those of other libraries, and the floor."""

import asyncio
import importlib
import secrets
import threading
import time
from datetime import timedelta
from importlib import metadata
from typing import Any, ClassVar

import redis
from waiters import Line

from lock_interceptor import LockSettings
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.redis_store.connection import MAX_CONNECTIONS, Connections
from lock_interceptor.store import Claim, LockId

LEASE = timedelta(seconds=30)
LEASE_MS = 30_000


def settings_for(url: str, **values: Any) -> LockSettings:
    """Settings for a server and, but for `values`, nothing else: the environment has no say."""
    return LockSettings(_env_file=None, redis_url=url, **values)


def new_claim(name: str, limit: int = 1) -> Claim:
    owner = secrets.token_hex(16)
    return Claim(lock=LockId("bench", name), owner=owner, waiter=owner[::-1], limit=limit)


class Contestant:
    """Takes a lock and gives it back, again and again, from several tasks or threads."""

    name: ClassVar[str]
    waits: ClassVar[bool] = True
    """It can wait for a lock that somebody else has."""
    limits: ClassVar[bool] = False
    """It knows limits above 1."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def pairs(self, locks: list[str], seconds: float, limit: int = 1) -> list[float]:
        """One task for each name; the seconds of each pair that ended in time."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close what is open."""


class _Tasks(Contestant):
    """In one event loop."""

    async def pairs(self, locks: list[str], seconds: float, limit: int = 1) -> list[float]:
        took: list[float] = []
        end = time.perf_counter() + seconds

        async def go(lock: str) -> None:
            while (began := time.perf_counter()) < end:
                await self.pair(lock, limit)
                if (ended := time.perf_counter()) <= end:
                    took.append(ended - began)

        await asyncio.gather(*map(go, locks))
        return took

    async def pair(self, lock: str, limit: int) -> None:
        raise NotImplementedError


class Floor(_Tasks):
    """One SET NX PX and one DEL: what no lock in Redis can do without. Not safe, and it cannot wait.

    On redis-py's client, as anybody would send them who writes his own lock.
    """

    name = "floor"
    waits = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._connections = Connections(settings_for(url))
        self._at_once = asyncio.Semaphore(MAX_CONNECTIONS)

    async def pair(self, lock: str, limit: int) -> None:
        del limit
        client: Any = self._connections.client
        async with self._at_once:
            await client.execute_command("SET", lock, "me", "NX", "PX", LEASE_MS)
        async with self._at_once:
            await client.execute_command("DEL", lock)

    async def close(self) -> None:
        await self._connections.close()


class SharedFloor(_Tasks):
    """The same on one connection for all tasks, the kind that the store sends its requests on."""

    name = "floor, shared"
    waits = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._connections = Connections(settings_for(url))

    async def pair(self, lock: str, limit: int) -> None:
        del limit
        shared = self._connections.shared
        assert shared is not None
        await shared.request(("SET", lock, "me", "NX", "PX", LEASE_MS))
        await shared.request(("DEL", lock))

    async def close(self) -> None:
        await self._connections.close()


class Store(_Tasks):
    """The store of this package alone: acquire and release, without waiting."""

    name = "lock_interceptor"
    waits = False
    limits = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.store = RedisLockStore(settings_for(url))

    async def pair(self, lock: str, limit: int) -> None:
        claim = new_claim(lock, limit)
        await self.store.acquire(claim, lease=LEASE)
        await self.store.release(claim)

    async def close(self) -> None:
        await self.store.close()


class Waiting(_Tasks):
    """The same with everything that is around it in a worker but Temporal: line, wake-ups, renewals."""

    name = "lock_interceptor"
    limits = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._line = Line(settings_for(url))

    async def pair(self, lock: str, limit: int) -> None:
        await self._line.run(new_claim(lock, limit), _nothing)

    async def close(self) -> None:
        await self._line.close()


async def _nothing() -> None:
    pass


class RedisPy(_Tasks):
    """The lock of redis-py, asyncio."""

    name = "redis-py Lock"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._client = redis.asyncio.Redis.from_url(
            url, decode_responses=True, protocol=2, max_connections=1000
        )

    async def pair(self, lock: str, limit: int) -> None:
        del limit
        held = self._client.lock(lock, timeout=LEASE_MS / 1000)
        await held.acquire()
        await held.release()

    async def close(self) -> None:
        await self._client.aclose()


class _Threads(Contestant):
    """A library without asyncio: a thread for each task."""

    module: ClassVar[str]

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._library = importlib.import_module(self.module)
        # a waiter blocks for longer than the socket would by default
        self._client = redis.Redis.from_url(url, protocol=2, socket_timeout=None, max_connections=1000)

    async def pairs(self, locks: list[str], seconds: float, limit: int = 1) -> list[float]:
        del limit
        took: list[float] = []
        errors: list[Exception] = []
        end = time.perf_counter() + seconds

        def go(lock: str) -> None:
            try:
                while (began := time.perf_counter()) < end:
                    if self.pair(lock) and (ended := time.perf_counter()) <= end:
                        took.append(ended - began)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=go, args=(lock,)) for lock in locks]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        if errors:
            raise errors[0]
        return took

    def pair(self, lock: str) -> bool:
        """Whether the lock was got."""
        raise NotImplementedError

    async def close(self) -> None:
        self._client.close()


class PythonRedisLock(_Threads):
    """python-redis-lock: threads, each waiter blocks on a list with a connection of its own."""

    name = "python-redis-lock"
    module = "redis_lock"

    def pair(self, lock: str) -> bool:
        held = self._library.Lock(self._client, lock, expire=LEASE_MS // 1000)
        got: bool = held.acquire(timeout=1)
        if got:
            held.release()
        return got


class Portalocker(_Threads):
    """portalocker's lock on Redis: a thread and a subscription for each holder."""

    name = "portalocker"
    module = "portalocker"

    def pair(self, lock: str) -> bool:
        held = self._library.RedisLock(lock, connection=self._client, timeout=1)
        try:
            held.acquire()
        except self._library.exceptions.LockException:
            return False
        held.release()
        return True


PEERS = {RedisPy: "redis", PythonRedisLock: "python-redis-lock", Portalocker: "portalocker"}
"""Other libraries, and the package on PyPI that each comes from."""


def installed_peers() -> tuple[list[type[Contestant]], list[str]]:
    """Those that are here, and what to say of those that are not."""
    found, missing = [], []
    for peer, package in PEERS.items():
        try:
            metadata.version(package)
            found.append(peer)
        except metadata.PackageNotFoundError:
            missing.append(
                f"{package} is not installed, so not measured: pip install 'lock-interceptor[bench]'"
            )
    return found, missing


def peer_versions() -> dict[str, str]:
    names = ("temporalio", "hiredis", *PEERS.values())
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "missing"
    return versions
