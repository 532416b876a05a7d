"""What the tests of the way to Redis share: stores, claims, and looks at a server's connections."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

from servers import command

from lock_interceptor import LockSettings, LockStoreUnavailable
from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.store import Claim, Granted, LockId, Queueing, Waiting

LEASE = timedelta(seconds=30)
QUEUEING = Queueing(presence=timedelta(seconds=30), keep=timedelta(seconds=60))


def settings_for(url: str | None, **values: Any) -> LockSettings:
    """Settings for a server, or without a URL for what `values` say, with locks that no other test has."""
    values.setdefault("application_name", f"test-{uuid4()}")
    return LockSettings(redis_url=url, **values) if url else LockSettings(**values)


@contextlib.asynccontextmanager
async def open_store(where: str | RedisServer | LockSettings, **values: Any) -> AsyncIterator[RedisLockStore]:
    """A store on a server, closed at the end."""
    if isinstance(where, LockSettings):
        settings = where
    else:
        settings = settings_for(where if isinstance(where, str) else where.url, **values)
    store = RedisLockStore(settings)
    try:
        yield store
    finally:
        await store.close()


def new_claim(lock: LockId | None = None, *, limit: int = 1) -> Claim:
    """A new acquisition, of a new lock unless one is given."""
    owner = uuid4().hex
    lock = lock or LockId("test", f"lock-{owner}")
    return Claim(lock=lock, owner=owner, waiter=f"waiter-{owner}", limit=limit)


async def take(store: RedisLockStore, claim: Claim, lease: timedelta = LEASE) -> Granted:
    """Take a lock that has to be free."""
    answer = await store.acquire(claim, lease=lease)
    assert isinstance(answer, Granted), answer
    return answer


async def stand_in_line(store: RedisLockStore, claim: Claim) -> Waiting:
    """Queue for a lock that has to be taken."""
    answer = await store.acquire(claim, lease=LEASE, queueing=QUEUEING)
    assert isinstance(answer, Waiting), answer
    return answer


async def line_length(store: RedisLockStore, claim: Claim) -> int:
    """How many wait for the lock of this claim."""
    return (await until_answered(lambda: store.inspect(claim.lock))).waiting


async def until_answered(call: Callable[[], Any], timeout: float = 10.0) -> Any:
    """Repeat a call to the store until it answers, as those who use the store do."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return await call()
        except LockStoreUnavailable:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.02)


async def eventually(condition: Callable[[], object], what: str, timeout: float = 10.0) -> None:
    """Return when `condition`, which may give an awaitable, is true."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout} s: {what}")
        await asyncio.sleep(0.01)


def connections(server: RedisServer, password: str | None = None, *, kind: str = "") -> list[dict[str, str]]:
    """The clients that are connected, without the one that asks; `kind` as CLIENT LIST TYPE takes it."""
    words = ["CLIENT", "LIST", *(["TYPE", kind] if kind else [])]
    lines = command(server, *words, password=password).splitlines()
    clients = [dict(field.split("=", 1) for field in line.split(" ") if "=" in field) for line in lines]
    return [client for client in clients if client["cmd"] != "client|list"]


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and everything that it goes back to."""
    seen: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        current = todo.pop()
        if current is not None and current not in seen:
            seen.append(current)
            todo += [current.__cause__, current.__context__]
    yield from seen
