"""Faults of a Cluster under load, each judged by the history checker; all locks are in its first part."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import history
import pytest
from fault_load import LEASE, LOCKS, ONE, Load, LoadLock, load
from fault_rows import conclude, graces, longest_pause, replid, requests_at, soon, under_load
from fault_servers import SplitClusterSet, is_replica
from figures import measured
from redis.crc import key_slot
from redis.exceptions import ClusterDownError
from servers import ClusterSet, command, info, matrix_binary
from slot_moves import hung
from topologies import OnCluster, in_sync

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.store import LockId

PATIENCE = 40.0
FIRST_PART = range(16_384 // 3)
"""The slots of the first primary."""
FILLERS = 5_000
"""Keys that are moved along with a lock."""
BATCH = 100


class FirstPart(OnCluster):
    """The first part of a Cluster, with a way to all other nodes."""

    def __init__(self, servers: ClusterSet) -> None:
        super().__init__(servers)
        self.nodes = servers.nodes


@pytest.fixture(scope="module")
def shared() -> Iterator[FirstPart]:
    """For tests that leave the Cluster whole."""
    with ClusterSet(replicas=1, binary=matrix_binary()) as servers:
        yield FirstPart(servers)


@pytest.fixture
def cluster(shared: FirstPart) -> FirstPart:
    """A Cluster that is whole."""
    shared.settle()
    return shared


def key_of(application: str, name: str) -> str:
    """The key of a lock of the load."""
    return lock_key("lock", LockId(application, name))


def moved_into(
    slots: Sequence[int], application: str, locks: Sequence[LoadLock] = LOCKS
) -> tuple[LoadLock, ...]:
    """Locks like these, with names that belong into these slots."""
    found, numbers = [], itertools.count()
    for lock in locks:
        names = (f"{lock.name}-{number}" for number in numbers)
        found.append(
            replace(
                lock,
                name=next(name for name in names if key_slot(key_of(application, name).encode()) in slots),
            )
        )
    return tuple(found)


@asynccontextmanager
async def loaded_with(
    run: history.Run, nodes: Sequence[RedisServer], primary: RedisServer, profile: str, lease: float = LEASE
) -> AsyncIterator[Load]:
    """Load on locks of the first part, which its replica knows."""
    application = f"load-{uuid4()}"
    settings = {"APPLICATION_NAME": application, "LOCK_DURABILITY": profile}
    # by a node that stays
    settings |= {"REDIS_URL": nodes[1].url, "REDIS_CLUSTER": "true"}
    async with load(run, settings, locks=moved_into(FIRST_PART, application), lease=lease) as loaded:
        await under_load(loaded)
        key = key_of(application, loaded.plan.locks[0].name)
        await soon(lambda: in_sync(primary, 1, key), "a replica in sync")
        yield loaded


@pytest.mark.parametrize("profile", ["failover", "strict"])
async def test_the_primary_is_killed(cluster: FirstPart, profile: str, tmp_path: Path) -> None:
    """Its replica takes over with one grace for each lock; in strict nothing is granted without a replica."""
    with history.recording(tmp_path / "history", *cluster.nodes) as run:
        async with loaded_with(run, cluster.nodes, cluster.primary, profile) as loaded:
            before = replid(cluster.primary)
            with run.fault("SIGKILL of the primary"):
                old = await asyncio.to_thread(cluster.fail_over)
                if profile == "strict":
                    cluster.bring_back(old)
                    await soon(lambda: is_replica(old), "the old primary as a replica")
            await loaded.until_progress(PATIENCE)
            assert replid(cluster.primary) != before
        conclude(run, "Cluster, SIGKILL of the primary", loaded, at_least={"histories begun anew": 3})
        assert set(graces(run).values()) == {1}
    if not old.running:
        cluster.bring_back(old)


async def test_the_primary_hangs_and_comes_back(cluster: FirstPart, tmp_path: Path) -> None:
    """A stale primary executes what was sent to it, of which nobody hears, and becomes a replica."""
    with history.recording(tmp_path / "history", *cluster.nodes) as run:
        async with loaded_with(run, cluster.nodes, cluster.primary, "strict") as loaded:
            old, (new,) = cluster.primary, cluster.replicas
            with run.fault("SIGSTOP of the primary"):
                with hung(old):
                    await soon(lambda: info(new, "replication")["role"] == "master", "a failover", PATIENCE)
                    resumed = time.time()
                await soon(lambda: is_replica(old), "the demotion of the old primary", PATIENCE)
            cluster.primary, cluster.replicas = new, [old]
            await loaded.until_progress(PATIENCE)
        conclude(run, "Cluster, SIGSTOP and SIGCONT of the primary", loaded, at_least={"requests lost": 1})
        parked = requests_at(run, old, resumed)
        measured(f"parked requests executed by the stale primary: {parked}")
        assert parked


async def test_failing_over_on_demand(cluster: FirstPart, tmp_path: Path) -> None:
    """There and back: each way brings one grace, nobody loses a lease or a place, and tokens rise."""
    with history.recording(tmp_path / "history", *cluster.nodes) as run:
        async with loaded_with(run, cluster.nodes, cluster.primary, "failover", lease=3) as loaded:
            first = cluster.primary
            for number in (1, 2):
                cluster.settle()
                old, (new,) = cluster.primary, cluster.replicas
                with run.fault(f"CLUSTER FAILOVER {number}"):
                    command(new, "CLUSTER", "FAILOVER")
                    await soon(lambda: info(new, "replication")["role"] == "master", "a failover")  # noqa: B023
                    await soon(lambda: is_replica(old), "the old primary as a replica")  # noqa: B023
                cluster.primary, cluster.replicas = new, [old]
                await loaded.until_progress(PATIENCE)
            assert cluster.primary is first
        conclude(run, "Cluster, failover A-B-A on demand", loaded, at_most={"lost": 0})
        assert set(graces(run).values()) == {2}


async def test_a_lock_moves_to_another_node(cluster: FirstPart, tmp_path: Path) -> None:
    """With thousands of keys beside it, and new locks on the way: nobody is stuck, and nobody overlaps."""
    with history.recording(tmp_path / "history", *cluster.nodes) as run:
        async with loaded_with(run, cluster.nodes, cluster.primary, "failover") as loaded:
            source, target = cluster.primary, cluster.nodes[1]
            key = key_of(loaded.application, loaded.plan.locks[0].name)
            slot = command(source, "CLUSTER", "KEYSLOT", key)
            script = "for i = 1, ARGV[1] do redis.call('SET', KEYS[1] .. i, i) end"
            command(source, "EVAL", script, 1, f"filler:{key}", FILLERS)
            begun = time.time()
            with run.fault("migration of a slot"):
                _open(slot, source, target)
                newcomer = loaded.start(
                    locks=moved_into([slot], loaded.application, [replace(ONE, name="new")] * 3), clients=3
                )
                moved = await asyncio.to_thread(_move_keys, slot, source, target)
                await loaded.until_progress(PATIENCE, workers=[newcomer])
                for node in (target, source):
                    command(node, "CLUSTER", "SETSLOT", slot, "NODE", command(target, "CLUSTER", "MYID"))
            await loaded.until_progress(PATIENCE)
            assert command(target, "EXISTS", key)
            await newcomer.stop()
            with run.fault("migration back"):
                _open(slot, target, source)
                await asyncio.to_thread(_move_keys, slot, target, source)
                for node in (source, target):
                    command(node, "CLUSTER", "SETSLOT", slot, "NODE", command(source, "CLUSTER", "MYID"))
            await loaded.until_progress(PATIENCE)
        conclude(run, f"Cluster, migration of a slot with {moved} keys", loaded)
        pause = longest_pause(run, key, begun)
        measured(f"longest time without a grant: {pause:.1f} s, of which a grace takes {loaded.lease:.1f} s")
        assert moved > FILLERS
        assert pause < loaded.lease + 5


def _open(slot: int, source: RedisServer, target: RedisServer) -> None:
    """Let the source send those who ask for a key that it does not have to the target."""
    command(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", command(source, "CLUSTER", "MYID"))
    command(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", command(target, "CLUSTER", "MYID"))


def _move_keys(slot: int, source: RedisServer, target: RedisServer) -> int:
    """Move all keys, as an operator's tools do; returns how many."""
    moved = 0
    while keys := command(source, "CLUSTER", "GETKEYSINSLOT", slot, BATCH):
        command(source, "MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)
        moved += len(keys)
    return moved


async def test_a_primary_in_the_minority(tmp_path: Path) -> None:
    """Cut off from all other nodes, it stops by itself; its replica takes over, and nobody overlaps."""
    # on Valkey always: with redis-server 7.0 behind these gates the old primary is not demoted in time
    with (
        SplitClusterSet() as servers,
        history.recording(tmp_path / "history", *servers.nodes) as run,
    ):
        first, replica = servers.nodes[0], servers.nodes[3]
        async with loaded_with(run, servers.nodes, first, "failover") as loaded:
            with run.fault("partition"):
                servers.cut()
                await soon(lambda: _is_down(first), "a node that refuses")
                await soon(lambda: info(replica, "replication")["role"] == "master", "a failover")
                await loaded.until_progress(PATIENCE)
                assert info(first, "replication")["role"] == "master"
                await asyncio.to_thread(servers.heal)
            await loaded.until_progress(PATIENCE)
        conclude(run, "Cluster, primary in the minority", loaded, at_least={"histories begun anew": 3})


def _is_down(node: RedisServer) -> bool:
    try:
        command(node, "GET", "{06S}")  # of the first slot
    except ClusterDownError:
        return True
    return False
