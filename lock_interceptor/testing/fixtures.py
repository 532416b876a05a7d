"""Fixtures for pytest; opt in with ``pytest_plugins = ["lock_interceptor.testing.fixtures"]``.

Needs pytest, and no plugin for async tests: the fixtures are synchronous.

lock_settings           `quick_settings`; override it in your conftest for others
lock_store              an `InMemoryLockStore`
faulty_lock_store       a `FaultyLockStore` in front of it
lock_interceptor        a `LockInterceptor` on `faulty_lock_store`, for a Worker
locked_environment      a `LockedActivityEnvironment` on `faulty_lock_store`
overlap                 an `OverlapRecorder`
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lock_interceptor import LockInterceptor, LockSettings
from lock_interceptor.testing import (
    FaultyLockStore,
    InMemoryLockStore,
    LockedActivityEnvironment,
    OverlapRecorder,
    quick_settings,
)


@pytest.fixture
def lock_settings() -> LockSettings:
    """Settings under which tests need not wait."""
    return quick_settings()


@pytest.fixture
def lock_store() -> InMemoryLockStore:
    """A lock store without a server."""
    return InMemoryLockStore()


@pytest.fixture
def faulty_lock_store(lock_store: InMemoryLockStore) -> FaultyLockStore:
    """`lock_store`, with faults on demand."""
    return FaultyLockStore(lock_store)


@pytest.fixture
def lock_interceptor(
    lock_settings: LockSettings, faulty_lock_store: FaultyLockStore
) -> Iterator[LockInterceptor]:
    """What to give to a Worker."""
    interceptor = LockInterceptor(lock_settings, store=faulty_lock_store)
    yield interceptor
    _finish(interceptor.close)


@pytest.fixture
def locked_environment(
    lock_settings: LockSettings, faulty_lock_store: FaultyLockStore
) -> Iterator[LockedActivityEnvironment]:
    """Runs activities under their locks, without a server."""
    environment = LockedActivityEnvironment(faulty_lock_store, lock_settings)
    yield environment
    _finish(environment.close)


@pytest.fixture
def overlap() -> OverlapRecorder:
    """Remembers who runs when."""
    return OverlapRecorder()


def _finish(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it in a loop and thread of its own, whatever runs the tests in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(close())).result()
