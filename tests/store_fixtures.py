"""A pytest plugin: ``bench`` runs a test on every store, ``redis_bench`` on the Redis ones only."""

from collections.abc import AsyncIterator

import pytest
from store_cases import Bench, RedisBench, store_on
from virtual_time import Clock, use_told_time

from lock_interceptor.testing import InMemoryLockStore


@pytest.fixture
def told_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scripts take the time from the test."""
    use_told_time(monkeypatch)


@pytest.fixture(params=["redis7", "valkey"])
async def redis_bench(request: pytest.FixtureRequest, told_time: None) -> AsyncIterator[RedisBench]:
    """A lock on each Redis server."""
    clock, server = Clock(), request.getfixturevalue(request.param)
    store = store_on(server, clock)
    yield RedisBench(store, clock, server)
    await store.close()


@pytest.fixture(params=["memory", "redis7", "valkey"])
async def bench(request: pytest.FixtureRequest, told_time: None) -> AsyncIterator[Bench]:
    """A lock on each store."""
    clock = Clock()
    if request.param == "memory":
        yield Bench(InMemoryLockStore(clock), clock)
        return
    store = store_on(request.getfixturevalue(request.param), clock)
    yield Bench(store, clock)
    await store.close()
