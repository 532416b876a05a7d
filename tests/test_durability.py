"""What a grant and a renewal wait for, by profile, on a real primary with two replicas."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from redis_tools import new_claim
from servers import ClusterSet, SentinelSet, info, wait_until
from structlog.testing import capture_logs

from lock_interceptor import LockSettings, LockStoreUnavailable, RedisLockStore
from lock_interceptor.dev import RedisServer
from lock_interceptor.store import Granted

LEASE = timedelta(seconds=10)


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelSet]:
    with SentinelSet() as sentinels:
        yield sentinels


@pytest.fixture
async def store(sentinels: SentinelSet, request: pytest.FixtureRequest) -> AsyncIterator[RedisLockStore]:
    """A store on the primary with the profile that the test asks for, and its replicas as they should be."""
    settings = LockSettings(
        redis_sentinel_hosts=sentinels.sentinel_hosts,
        redis_sentinel_service=sentinels.service,
        durability=getattr(request, "param", None),
        lease=LEASE,
    )
    store = RedisLockStore(settings)
    yield store
    for replica in sentinels.replicas:
        replica.resume()
    await store.close()


def waits(server: RedisServer) -> int:
    """How often the server was asked to wait for its replicas."""
    stats = info(server, "commandstats").get("cmdstat_wait", "calls=0,")
    return int(stats.split("calls=")[1].split(",")[0])


@pytest.mark.parametrize(
    ("store", "with_grant", "with_renewal"),
    [("primary", 0, 0), (None, 1, 0), ("failover", 1, 0), ("strict", 1, 1)],
    indirect=["store"],
)
async def test_profile_decides_what_is_waited_for(
    store: RedisLockStore, sentinels: SentinelSet, with_grant: int, with_renewal: int
) -> None:
    """On Sentinel a grant waits for a replica by default, and with strict a renewal for all of them."""
    claim = new_claim()
    await acquired(store, new_claim())  # learns how many replicas there are
    before = waits(sentinels.primary)

    assert isinstance(await store.acquire(claim, lease=LEASE), Granted)
    granted = waits(sentinels.primary)
    assert await store.renew(claim, lease=LEASE)
    renewed = waits(sentinels.primary)
    assert await store.release(claim)

    assert (with_grant, with_renewal, 0) == (
        granted - before,
        renewed - granted,
        waits(sentinels.primary) - renewed,
    )


@pytest.mark.parametrize("store", ["strict"], indirect=True)
async def test_strict_takes_nothing_that_a_replica_has_not(
    store: RedisLockStore, sentinels: SentinelSet
) -> None:
    """While a replica hangs nothing is granted or renewed, and when it is back the same claim is."""
    held, claim = new_claim(), new_claim()
    await acquired(store, held)
    sentinels.replicas[0].pause()

    with pytest.raises(LockStoreUnavailable, match="1 of 2 replicas"):
        await store.renew(held, lease=LEASE)
    with pytest.raises(LockStoreUnavailable, match="1 of 2 replicas"):
        await store.acquire(claim, lease=LEASE)

    sentinels.replicas[0].resume()
    await acquired(store, claim)
    assert await store.renew(held, lease=LEASE)


async def acquired(store: RedisLockStore, claim) -> None:
    """Take a lock as soon as enough replicas confirm it."""
    async with asyncio.timeout(20):
        while True:
            try:
                assert isinstance(await store.acquire(claim, lease=LEASE), Granted)
            except LockStoreUnavailable:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize("store", ["failover"], indirect=True)
async def test_failover_goes_on_without_replicas_and_says_so_once(
    store: RedisLockStore, sentinels: SentinelSet
) -> None:
    """With all replicas hanging locks are granted all the same, with one warning until that is over."""
    await acquired(store, new_claim())
    with capture_logs() as logs:
        for replica in sentinels.replicas:
            replica.pause()
        for _ in range(2):
            assert isinstance(await store.acquire(new_claim(), lease=LEASE), Granted)

    assert [entry["event"] for entry in logs] == ["lock.not_replicated"]


@pytest.mark.parametrize(("profile", "granted"), [("primary", True), ("failover", True), ("strict", False)])
async def test_one_server_without_replicas(valkey: RedisServer, profile: str, granted: bool) -> None:
    """A single server serves all profiles but strict, and is not waited for in vain."""
    store, before = RedisLockStore(LockSettings(redis_url=valkey.url, durability=profile)), waits(valkey)
    for _ in range(3):
        if granted:
            assert isinstance(await store.acquire(new_claim(), lease=LEASE), Granted)
        else:
            with pytest.raises(LockStoreUnavailable, match="0 of 1 replicas"):
                await store.acquire(new_claim(), lease=LEASE)
    await store.close()

    assert waits(valkey) - before <= 1


async def test_cluster_waits_at_the_node_of_the_lock() -> None:
    """On a Cluster each grant is confirmed by a replica of the node that has the lock."""
    with ClusterSet(replicas=1) as cluster:
        primaries = cluster.nodes[:3]
        for primary in primaries:
            wait_until(lambda p=primary: info(p, "replication")["connected_slaves"] == "1", "a replica")
        store = RedisLockStore(LockSettings(redis_url=cluster.url, redis_cluster=True))
        with capture_logs() as logs:
            for _ in range(30):
                await acquired(store, new_claim())
        await store.close()

        assert all(waits(primary) for primary in primaries)
        assert sum(waits(primary) for primary in primaries) >= 30
        assert not [entry for entry in logs if entry["event"] == "lock.not_replicated"]
