"""What a profile does when replicas do not confirm in time, or nobody tells how many there are."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from patience import waiting
from redis_tools import LEASE, eventually, new_claim, open_store, settings_for, take, until_answered
from rights import least_rights
from servers import ClusterSet, SentinelSet, command, info, wait_until
from slot_moves import hung
from structlog.testing import capture_logs
from topologies import in_sync

from lock_interceptor import LockConfigurationError, LockStoreUnavailable
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.redis_store.sending import read_nodes
from lock_interceptor.store import Granted, LockId

SECONDS = 10
"""A lease: a confirmation may take a twentieth of it."""


@pytest.fixture(scope="module")
def replica(primary: RedisServer) -> Iterator[RedisServer]:
    """The replica of the primary."""
    with RedisServer("--replicaof", f"{HOST} {primary.port}") as replica:
        wait_until(lambda: in_sync(primary, 1, "test"), "a replica in sync")
        yield replica


@pytest.fixture(scope="module")
def primary() -> Iterator[RedisServer]:
    """A server of its own."""
    with RedisServer("--repl-diskless-sync-delay", "0") as primary:
        yield primary


async def _holders(store: RedisLockStore, lock: LockId) -> int:
    return len((await until_answered(lambda: store.inspect(lock))).holders)


async def test_an_unconfirmed_grant_is_given_back(primary: RedisServer, replica: RedisServer) -> None:
    """In strict a waiter whose grant is not confirmed does not hold the lock, and leaves it to others."""
    claim = new_claim()
    async with open_store(primary, durability="strict", lease=SECONDS) as store:
        await store.check()
        with hung(replica):
            async with waiting(store, claim, interval=0.1) as granted:
                await eventually(lambda: _holders(store, claim.lock), "a grant at the server")
                before = _attempts(primary)
                await eventually(lambda: granted.done() or _attempts(primary) > before + 2, "more attempts")
                assert not granted.done()
            await eventually(lambda: _is_free(store, claim.lock), "the way back")


def _attempts(server: RedisServer) -> int:
    return int(info(server, "commandstats").get("cmdstat_wait", "calls=0,").split("calls=")[1].split(",")[0])


async def _is_free(store: RedisLockStore, lock: LockId) -> bool:
    return not await _holders(store, lock)


async def test_an_unconfirmed_grant_is_granted_once_it_is_confirmed(
    primary: RedisServer, replica: RedisServer
) -> None:
    """The waiter asks again with the same owner, so it gets what it was granted before."""
    claim = new_claim()
    async with open_store(primary, durability="strict", lease=SECONDS) as store:
        with hung(replica):
            async with waiting(store, claim, interval=0.1) as granted:
                await eventually(lambda: _holders(store, claim.lock), "a grant at the server")
                replica.resume()
                hold = await asyncio.wait_for(granted, 10)
                (holder,) = (await store.inspect(claim.lock)).holders
                assert (holder.owner, holder.token) == (claim.owner, hold.lease.token)


async def test_an_unconfirmed_renewal_extends_nothing(primary: RedisServer, replica: RedisServer) -> None:
    """In strict a lease whose renewals are not confirmed ends here, though the primary has extended it."""
    claim, lease = new_claim(), timedelta(seconds=2)
    async with (
        open_store(primary, durability="strict", lease=SECONDS) as store,
        waiting(store, claim, interval=0.1, lease=lease) as granted,
    ):
        hold = await asyncio.wait_for(granted, 10)
        with hung(replica):
            expires = time.monotonic() + hold.lease.remaining
            await eventually(lambda: hold.lease.lost, "the end of the lease")
            assert time.monotonic() < expires + lease.total_seconds() / 2
            assert await _holders(store, claim.lock) == 1


async def test_an_unconfirmed_renewal_is_no_answer(primary: RedisServer, replica: RedisServer) -> None:
    """In strict the store says that nobody can tell, and never that the lease was renewed."""
    claim, said = new_claim(), ""
    async with open_store(primary, durability="strict", lease=SECONDS) as store:
        await until_answered(lambda: store.acquire(claim, lease=LEASE))
        with hung(replica):
            while "0 of 1 replicas have confirmed the renewal" not in said:  # a busy machine says more
                with pytest.raises(LockStoreUnavailable) as caught:
                    # within the same millisecond one as long as the grant would change nothing
                    await store.renew(claim, lease=LEASE * 2)
                said = str(caught.value)
        assert await until_answered(lambda: store.renew(claim, lease=LEASE))


@pytest.mark.parametrize("profile", ["failover", "strict"])
async def test_a_hung_replica_delays_a_grant_within_bounds(
    primary: RedisServer, replica: RedisServer, profile: str
) -> None:
    """A confirmation that does not come is not waited for longer than a request may take."""
    async with open_store(primary, durability=profile, lease=SECONDS) as store:
        await until_answered(lambda: store.acquire(new_claim(), lease=LEASE))
        with hung(replica), capture_logs() as logs:
            start = time.monotonic()
            if profile == "strict":
                with pytest.raises(LockStoreUnavailable, match="0 of 1 replicas have confirmed the grant"):
                    await store.acquire(new_claim(), lease=LEASE)
            else:
                for _ in range(12):
                    assert isinstance(await store.acquire(new_claim(), lease=LEASE), Granted)
                assert [entry["event"] for entry in logs] == ["lock.not_replicated"]
            assert 0.4 < time.monotonic() - start < 4  # and failover does not wait twelve times half a second
        await until_answered(lambda: store.acquire(new_claim(), lease=LEASE))


async def test_a_primary_that_is_demoted_meanwhile_confirms_nothing() -> None:
    """WAIT is cut short when its server becomes a replica: the grant may be gone, so it does not count."""
    with RedisServer("--repl-diskless-sync-delay", "0") as old, RedisServer() as new:
        command(new, "REPLICAOF", HOST, old.port)
        wait_until(lambda: in_sync(old, 1, "test"), "a replica in sync")
        async with open_store(old, durability="failover", lease=SECONDS) as store:
            await take(store, new_claim())
            with hung(new):
                asked = asyncio.create_task(store.acquire(new_claim(), lease=LEASE))
                await eventually(lambda: info(old, "clients")["blocked_clients"] == "1", "a WAIT")
                command(old, "REPLICAOF", HOST, new.port)
                with pytest.raises(LockStoreUnavailable, match="UNBLOCKED"):
                    await asked


async def test_strict_on_a_server_without_replicas_is_refused_at_the_start(valkey: RedisServer) -> None:
    """The check says that no lock can ever be granted; who asks all the same is not kept waiting."""
    async with open_store(valkey, durability="strict") as store:
        with pytest.raises(LockConfigurationError, match="has no replica, so no lock would ever be granted"):
            await store.check()
        before = _attempts(valkey)
        for _ in range(3):
            with pytest.raises(LockStoreUnavailable, match="0 of 1 replicas"):
                await store.acquire(new_claim(), lease=LEASE)
        assert _attempts(valkey) == before
    for profile in ("primary", "failover"):
        async with open_store(valkey, durability=profile) as store:
            await store.check()
            await take(store, new_claim())


async def test_strict_in_a_cluster_names_the_primaries_without_replicas() -> None:
    """One part of a Cluster without a replica would leave the locks of that part ungranted."""
    with ClusterSet() as cluster:
        async with open_store(cluster.url, redis_cluster=True, durability="strict") as store:
            ports = [str(node.port) for node in cluster.nodes]
            with pytest.raises(LockConfigurationError, match="no replica") as refused:
                await store.check()
            assert all(port in str(refused.value) for port in ports)


NODES = """\
aa 10.0.0.1:6379@16379,host-a myself,master - 0 1 1 connected 0-5460
bb 10.0.0.2:6379@16379 slave,fail aa 0 1 1 disconnected
cc 10.0.0.3:6379@16379 slave aa 0 1 1 connected
dd 10.0.0.4:6379@16379 master - 0 1 1 connected 5461-10922 [10000->-aa]
ee 10.0.0.5:6379@16379 master - 0 1 1 connected
"""


def test_replicas_that_failed_count_in_a_cluster() -> None:
    """Who is down may be back and promoted; a primary without slots needs no replica."""
    assert read_nodes(NODES) == (2, ("10.0.0.4:6379",))


@contextmanager
def _few_rights(server: RedisServer, *rules: str) -> Iterator[str]:
    command(server, "ACL", "SETUSER", "few", ">few-rights", *least_rights(), *rules)
    try:
        yield f"redis://few:few-rights@{HOST}:{server.port}/0"
    finally:
        command(server, "ACL", "DELUSER", "few")


@pytest.mark.parametrize("profile", ["primary", "failover"])
async def test_without_info_the_price_is_told_once(
    primary: RedisServer, replica: RedisServer, profile: str
) -> None:
    """Whoever may not use INFO goes without the grace, and is told so once, from whatever loops he asks."""
    del replica
    with _few_rights(primary, "-info") as url, capture_logs() as logs:
        async with open_store(url, durability=profile) as store:
            await store.check()

            async def elsewhere() -> None:
                await take(store, new_claim())
                await store.close()

            await asyncio.to_thread(asyncio.run, elsewhere())
            await take(store, new_claim())
    (said,) = [entry for entry in logs if entry["event"] == "lock.info_forbidden"]
    assert "goes unnoticed" in said["effect"]
    assert ("confirmation" in said["effect"]) == (profile == "failover")


async def test_strict_needs_info_where_nobody_else_counts_replicas(primary: RedisServer) -> None:
    """On one Redis nobody but INFO tells how many replicas there are, so strict is refused without it."""
    with _few_rights(primary, "-info") as url:
        async with open_store(url, durability="strict") as store:
            with pytest.raises(LockConfigurationError, match="strict, and the Redis user may not use INFO"):
                await store.check()


async def test_strict_goes_by_the_sentinels_without_info() -> None:
    """The Sentinels count replicas too, and need no right more than finding the primary does."""
    with SentinelSet() as servers:
        for server in (servers.primary, *servers.replicas):
            command(server, "ACL", "SETUSER", "default", "-info")
        settings = settings_for(None, redis_sentinel_hosts=servers.sentinel_hosts, durability="strict")
        with capture_logs() as logs:
            async with open_store(settings) as store:
                await until_answered(store.check)
                with hung(servers.replicas[0]), pytest.raises(LockStoreUnavailable, match="1 of 2 replicas"):
                    await store.acquire(new_claim(), lease=LEASE)
        assert [entry["event"] for entry in logs] == ["lock.info_forbidden"]
