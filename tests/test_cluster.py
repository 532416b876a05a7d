"""Locks on a Redis Cluster: spread over the nodes, with wake-ups between them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest
from patience import waiting
from redis_tools import (
    LEASE,
    connections,
    eventually,
    line_length,
    new_claim,
    open_store,
    settings_for,
    take,
    until_answered,
)
from servers import ClusterSet, command

from lock_interceptor import LockConfigurationError, LockStoreUnavailable
from lock_interceptor.dev.process import HOST
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.store import Claim, Granted

SOON = 10.0


@pytest.fixture(scope="module")
def servers() -> Iterator[ClusterSet]:
    """Three nodes without replicas."""
    with ClusterSet() as servers:
        yield servers


@pytest.fixture
async def store(servers: ClusterSet) -> AsyncIterator[RedisLockStore]:
    async with open_store(servers.url, redis_cluster=True) as store:
        yield store


def _node_of(servers: ClusterSet, claim: Claim) -> int:
    """Which node has the key of this lock."""
    key = lock_key("lock", claim.lock)
    return next(i for i, node in enumerate(servers.nodes) if key in command(node, "KEYS", "lock:*"))


@pytest.mark.parametrize("by_url", [True, False])
async def test_locks_spread_over_the_nodes(servers: ClusterSet, by_url: bool) -> None:
    """Locks of many names live on all nodes, given one node's URL or host and port."""
    place = {"redis_host": HOST, "redis_port": servers.nodes[1].port}
    settings = settings_for(servers.url if by_url else None, redis_cluster=True, **({} if by_url else place))
    async with open_store(settings) as store:
        await store.check()
        claims = [new_claim() for _ in range(30)]
        await asyncio.gather(*(take(store, claim) for claim in claims))
        assert {_node_of(servers, claim) for claim in claims} == {0, 1, 2}
        for claim in claims:
            assert await store.renew(claim, lease=settings.lease)
            assert len((await store.inspect(claim.lock)).holders) == 1
            assert await store.release(claim)


async def test_wake_ups_cross_nodes(servers: ClusterSet, store: RedisLockStore) -> None:
    """One subscriber hears of the locks of all nodes, long before the next poll."""
    holders = [new_claim() for _ in range(8)]
    async with AsyncExitStack() as stack:
        waiters = []
        for holder in holders:
            await take(store, holder)
            waiters.append(await stack.enter_async_context(waiting(store, new_claim(holder.lock))))
        for holder in holders:
            await eventually(lambda: line_length(store, holder), "a waiter")  # noqa: B023 - awaited here
        subscribers = [client for node in servers.nodes for client in connections(node, kind="pubsub")]
        assert len(subscribers) == 1
        assert len({_node_of(servers, holder) for holder in holders}) > 1
        for holder in holders:
            await store.release(holder)
        await asyncio.wait_for(asyncio.gather(*waiters), SOON)


async def test_after_closing_no_node_has_a_connection_of_ours(servers: ClusterSet) -> None:
    """Closing ends the connections to all nodes, and the store can be used again."""
    before = [len(connections(node)) for node in servers.nodes]
    async with open_store(servers.url, redis_cluster=True) as store:
        for _ in range(2):
            claim = new_claim()
            async with store.wakeups(claim) as called:
                await eventually(called.is_set, "the subscription")
                await asyncio.gather(*(store.inspect(new_claim().lock) for _ in range(20)))
            await store.close()
            await eventually(
                lambda: [len(connections(node)) for node in servers.nodes] == before, "no connection of ours"
            )


async def test_a_database_does_not_go_with_a_cluster(servers: ClusterSet) -> None:
    """A database in the URL is a configuration error that names it."""
    async with open_store(servers.url.removesuffix("/0") + "/1", redis_cluster=True) as store:
        with pytest.raises(LockConfigurationError, match=r"REDIS_URL.*db"):
            await store.check()


async def test_a_node_may_go_and_come_back() -> None:
    """Whatever node restarts, its locks can be taken again and wake-ups arrive, with no restart of ours."""
    with ClusterSet() as servers:
        async with open_store(servers.url, redis_cluster=True, lease=5) as store:
            claims = [new_claim() for _ in range(30)]  # some on each node, but for one time in a million
            await asyncio.gather(*(take(store, claim) for claim in claims))
            async with store.wakeups(new_claim()):
                for node in servers.nodes:
                    node.kill()
                    lost = [await _outcome(store, claim) for claim in claims]
                    assert False in lost
                    node.start()
                    for claim in claims:
                        await until_answered(lambda: store.release(claim), 20)  # noqa: B023 - awaited here
                        await eventually(lambda: _taken(store, claim), "a lock", 20)  # noqa: B023
                async with waiting(store, new_claim(claims[0].lock)) as granted:
                    await eventually(lambda: line_length(store, claims[0]), "a waiter")
                    async with store.wakeups(new_claim(claims[0].lock)) as called:
                        await eventually(called.is_set, "the subscription")
                        await until_answered(lambda: store.release(claims[0]))
                        await asyncio.wait_for(granted, SOON)


async def _outcome(store: RedisLockStore, claim: Claim) -> bool:
    try:
        return await store.renew(claim, lease=LEASE)
    except LockStoreUnavailable:
        return False


async def _taken(store: RedisLockStore, claim: Claim) -> bool:
    return isinstance(await until_answered(lambda: store.acquire(claim, lease=LEASE)), Granted)
