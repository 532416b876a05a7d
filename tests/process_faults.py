"""Faults of the process around the lock, each brought about at the point where it comes from."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from lock_interceptor.renewing import Renewals
from lock_interceptor.store import Claim, LockStore

KEEPER = "lock_interceptor.keeper"
"""The name of the thread that renews."""


def renews_nothing(patch: pytest.MonkeyPatch) -> None:
    """Replace what renews by one that does nothing but note that it is held; only here is its name known."""
    patch.setattr(Renewals, "keep", lambda _, hold: hold.begin())


class Unexpected(BaseException):
    """What no ``except Exception`` catches."""


class ThreadOf:
    """A store whose renewals do something in the thread that renews, before they are sent."""

    def __init__(self, inner: LockStore) -> None:
        self._inner = inner
        self.do: Callable[[], object] = lambda: None
        self.done = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """See `LockStore.renew`."""
        self.done += 1
        self.do()
        return await self._inner.renew(claim, lease=lease)


@contextlib.contextmanager
def no_new_thread(times: int) -> Iterator[list[str]]:
    """While entered, the thread that renews cannot be started, so many times; yields the failures."""
    start, failed = threading.Thread.start, list[str]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name == KEEPER and len(failed) < times:
            failed.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield failed


@contextlib.contextmanager
def thread_dies(store: ThreadOf) -> Iterator[None]:
    """While entered, the loop of the thread ends by an error whenever it has begun to renew."""

    def end() -> None:
        raise SystemExit("in the loop of the thread that renews")

    store.do = lambda: asyncio.get_running_loop().call_soon(end)
    try:
        yield
    finally:
        store.do = lambda: None


@contextlib.contextmanager
def thread_raises(store: ThreadOf, error: type[BaseException]) -> Iterator[None]:
    """While entered, each renewal raises this."""

    def fail() -> None:
        raise error("in the thread that renews")

    store.do = fail
    try:
        yield
    finally:
        store.do = lambda: None


@contextlib.contextmanager
def thread_hangs(store: ThreadOf) -> Iterator[None]:
    """While entered, the thread that renews is blocked as soon as it renews."""
    go_on = threading.Event()
    store.do = lambda: go_on.wait(30)
    try:
        yield
    finally:
        store.do = lambda: None
        go_on.set()
