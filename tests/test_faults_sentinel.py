"""Faults of a Sentinel set under load, each judged by the history checker."""

import asyncio
import time
from pathlib import Path

import history
import pytest
import redis
from fault_load import Load, load
from fault_rows import conclude, graces, granted_by, replid, requests_at, soon, under_load
from fault_servers import NEVER, alert, is_replica, prepare, taken_over
from figures import measured
from servers import SentinelSet, command, matrix_binary
from slot_moves import hung
from topologies import in_sync

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST

PATIENCE = 40.0


def variables(servers: SentinelSet, profile: str = "failover") -> dict[str, str]:
    """The settings of the load's clients."""
    return {"REDIS_SENTINEL_HOSTS": servers.sentinel_hosts, "LOCK_DURABILITY": profile}


def data(servers: SentinelSet) -> list[RedisServer]:
    """The servers that may have locks."""
    return [servers.primary, *servers.replicas]


async def settled(servers: SentinelSet, loaded: Load) -> None:
    """Wait until all is in use, and all replicas have what the primary has."""
    await under_load(loaded)
    await soon(lambda: in_sync(servers.primary, 2, "faults"), "replicas in sync", PATIENCE)


async def test_the_primary_is_killed(tmp_path: Path) -> None:
    """Another one takes over, with one grace for each lock; in strict it grants when it has all replicas."""
    with (
        SentinelSet(binary=matrix_binary()) as servers,
        history.recording(tmp_path / "history", *data(servers)) as run,
    ):
        prepare(servers)
        async with load(run, variables(servers, "strict")) as loaded:
            await settled(servers, loaded)
            old, before = servers.primary, replid(servers.primary)
            with run.fault("SIGKILL of the primary"):
                old.kill()
                alert(servers)
                new = await taken_over(servers, old)
                old.start()
                command(old, "REPLICAOF", HOST, new.port)  # Sentinel would do so after eight seconds
                await soon(lambda: is_replica(old), "the old primary as a replica")
            await loaded.until_progress(PATIENCE)
            assert replid(new) != before
        conclude(run, "Sentinel, SIGKILL of the primary", loaded, at_least={"histories begun anew": 3})
        assert set(graces(run).values()) == {1}


@pytest.mark.parametrize("profile", ["failover", "strict"])
async def test_the_primary_hangs_and_comes_back(profile: str, tmp_path: Path) -> None:
    """A stale primary executes what was sent to it, of which nobody hears, and becomes a replica."""
    with (
        SentinelSet(binary=matrix_binary()) as servers,
        history.recording(tmp_path / "history", *data(servers)) as run,
    ):
        prepare(servers)
        async with load(run, variables(servers, profile)) as loaded:
            await settled(servers, loaded)
            old = servers.primary
            with run.fault("SIGSTOP of the primary"):
                with hung(old):
                    alert(servers)
                    await taken_over(servers, old)
                    if profile == "failover":
                        await loaded.until_progress(PATIENCE)
                    resumed = time.time()
                await soon(lambda: is_replica(old), "the demotion of the old primary")
            await loaded.until_progress(PATIENCE)
        conclude(run, "Sentinel, SIGSTOP and SIGCONT of the primary", loaded, at_least={"answers lost": 1})
        parked = requests_at(run, old, resumed)
        measured(f"parked requests executed by the stale primary: {parked}")
        assert parked


async def test_a_replaced_primary_that_refuses(tmp_path: Path) -> None:
    """With min-replicas-to-write it does so until it is demoted, ten seconds later; clients do not wait."""
    with (
        SentinelSet(binary=matrix_binary()) as servers,
        history.recording(tmp_path / "history", *data(servers)) as run,
    ):
        for server in data(servers):
            _want_a_replica(server)
        alert(servers, NEVER)
        async with load(run, variables(servers)) as loaded:
            await settled(servers, loaded)
            old = servers.primary
            with run.fault("SENTINEL FAILOVER"):
                await soon(lambda: _fails_over(servers), "a failover on demand")
                await taken_over(servers, old)
                begun = time.monotonic()
                await loaded.until_progress(PATIENCE)
                took = time.monotonic() - begun
        conclude(run, "Sentinel, failover on demand with min-replicas", loaded)
        measured(f"everybody granted again {took:.1f} s after the failover")
        assert took < 9


async def test_failing_over_and_back_on_demand(tmp_path: Path) -> None:
    """Each way brings one grace; places are kept, and tokens rise."""
    with (
        SentinelSet(binary=matrix_binary()) as servers,
        history.recording(tmp_path / "history", *data(servers)) as run,
    ):
        prepare(servers)
        first, spare = servers.primary, servers.replicas[0]
        command(spare, "CONFIG", "SET", "replica-priority", 0)  # never promoted
        async with load(run, variables(servers), lease=3) as loaded:
            for number in (1, 2):
                await settled(servers, loaded)
                await soon(lambda: _only_one_can_take_over(servers), "Sentinels that know who may")
                old, before = servers.primary, replid(servers.primary)
                with run.fault(f"SENTINEL FAILOVER {number}"):
                    await soon(lambda: _fails_over(servers), "a failover on demand", 20)
                    new = await taken_over(servers, old)
                    await soon(lambda: is_replica(old), "the demotion of the old primary")  # noqa: B023
                await loaded.until_progress(PATIENCE)
                assert replid(new) != before
            assert servers.primary is first
        conclude(run, "Sentinel, failover A-B-A on demand", loaded)
        assert set(graces(run).values()) == {2}


def _only_one_can_take_over(servers: SentinelSet) -> bool:
    """Whether all Sentinels know of the replica that is never promoted, and that the other one is well."""
    for sentinel in servers.sentinels:
        rows = servers.ask(sentinel, "REPLICAS", servers.service)
        replicas = [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]
        found = sorted(
            (each["slave-priority"], each["flags"], each["master-link-status"]) for each in replicas
        )
        if found != [("0", "slave", "ok"), ("100", "slave", "ok")]:
            return False
    return True


def _fails_over(servers: SentinelSet) -> bool:
    """Ask for it; while a Sentinel is busy with the one before it refuses, which is an error."""
    try:
        return servers.ask(servers.sentinels[0], "FAILOVER", servers.service) == "OK"
    except redis.ResponseError:
        return False


async def test_a_hung_sentinel_that_is_asked_first(tmp_path: Path) -> None:
    """The primary is killed meanwhile: it delays who has to find the new one, and stops nobody."""
    with (
        SentinelSet(binary=matrix_binary()) as servers,
        history.recording(tmp_path / "history", *data(servers)) as run,
    ):
        prepare(servers)
        async with load(run, variables(servers)) as loaded:
            await settled(servers, loaded)
            old = servers.primary
            with (
                run.fault("SIGSTOP of the first Sentinel, SIGKILL of the primary"),
                hung(servers.sentinels[0]),
            ):
                everyone, servers.sentinels = servers.sentinels, servers.sentinels[1:]
                old.kill()
                alert(servers)
                await taken_over(servers, old)
                begun = time.monotonic()
                newcomer = loaded.start()
                await loaded.until_progress(PATIENCE)
                took = time.monotonic() - begun
                servers.sentinels = everyone
            assert newcomer.alive
        conclude(run, "Sentinel, SIGKILL of the primary with a hung Sentinel", loaded)
        assert set(graces(run).values()) == {1}
        measured(f"everybody granted again {took:.1f} s after the failover")


async def test_all_sentinels_are_gone(tmp_path: Path) -> None:
    """Who is connected goes on; who has to connect is told soon, and goes on when a Sentinel is back."""
    with (
        SentinelSet(binary=matrix_binary()) as servers,
        history.recording(tmp_path / "history", *data(servers)) as run,
    ):
        prepare(servers)
        async with load(run, variables(servers), max_wait=1) as loaded:
            connected = list(loaded.workers)
            await settled(servers, loaded)
            with run.fault("SIGKILL of all Sentinels"):
                for sentinel in servers.sentinels:
                    sentinel.kill()
                await loaded.until_progress(PATIENCE, workers=connected)
                newcomer = loaded.start()
                await loaded.until(lambda: _told(loaded, newcomer.pid), "an error for the newcomer")
                for kind in ("normal", "pubsub"):
                    command(servers.primary, "CLIENT", "KILL", "TYPE", kind)
                mark = loaded.mark()
                await loaded.until(
                    lambda: all(_told(loaded, each.pid, mark) for each in connected), "errors for all"
                )
                for sentinel in servers.sentinels:
                    sentinel.start()
            await loaded.until_progress(PATIENCE)
        conclude(run, "Sentinel, all Sentinels killed, then all connections", loaded)


def _told(loaded: Load, pid: int, since: int = 0) -> bool:
    return any(
        process == str(pid) and what == "LockStoreUnavailable"
        for process, _, _, what, *_ in loaded.progress(since)
    )


async def test_a_primary_that_misses_its_replicas(tmp_path: Path) -> None:
    """With min-replicas-to-write it takes nothing while they are away, and nobody is stuck after."""
    with (
        SentinelSet(binary=matrix_binary()) as servers,
        history.recording(tmp_path / "history", *data(servers)) as run,
    ):
        prepare(servers)
        _want_a_replica(servers.primary)
        async with load(run, variables(servers)) as loaded:
            with run.fault("SIGSTOP of all replicas"), hung(servers.replicas[0]), hung(servers.replicas[1]):
                await soon(lambda: _refuses(servers.primary), "NOREPLICAS")
                refused = time.time()
                await asyncio.sleep(loaded.lease)
                assert not granted_by(run, servers.primary, refused)
            await loaded.until_progress(PATIENCE)
        conclude(run, "Sentinel, NOREPLICAS", loaded, at_least={"requests lost": 1})


def _want_a_replica(server: RedisServer) -> None:
    """Let it refuse to be written to without a replica."""
    for name, value in (("min-replicas-to-write", 1), ("min-replicas-max-lag", 1)):
        command(server, "CONFIG", "SET", name, value)


def _refuses(server: RedisServer) -> bool:
    try:
        command(server, "SET", "faults:probe", 1)
    except redis.ResponseError as error:
        return str(error).startswith("NOREPLICAS")
    return False
