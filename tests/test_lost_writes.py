"""Who believes to hold a lock after a grant was forgotten, by profile: the README's table comes from here.

A belief lasts from the answer that grants until the lease is lost or given back. Where two may overlap, that
is asserted too: it is what the table says, and it shows that these tests would see it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from patience import waiting
from redis_tools import eventually, new_claim, open_store, take, until_answered
from servers import command
from structlog.testing import capture_logs
from virtual_ip import Pair, pair

from lock_interceptor.dev import RedisServer
from lock_interceptor.keeper import Hold
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.store import LockId, Waiting

LEASE = timedelta(seconds=2)
LONG = timedelta(seconds=30)
"""A lease whose holder does not ask again for as long as a test lasts."""


async def known_lock(store: RedisLockStore, lease: timedelta = LEASE) -> LockId:
    """A lock that was held and given back: it is in Redis."""
    claim = new_claim()
    await until_answered(lambda: take(store, claim, lease))
    await until_answered(lambda: store.release(claim))
    return claim.lock


@asynccontextmanager
async def holding(store: RedisLockStore, lock: LockId, lease: timedelta) -> AsyncIterator[Hold]:
    """Hold a lock as a worker does."""
    async with waiting(store, new_claim(lock), interval=0.05, lease=lease) as granted:
        yield await asyncio.wait_for(granted, 10)


async def holder_stays(store: RedisLockStore, lock: LockId, fault: Callable[[], object]) -> None:
    """After the fault the holder is still known, and so nobody else is granted the lock."""
    async with holding(store, lock, LONG) as held:
        await asyncio.to_thread(fault)
        assert await until_answered(lambda: store.renew(held.claim, lease=LONG))
        answer = await until_answered(lambda: store.acquire(new_claim(lock), lease=LEASE))
        assert isinstance(answer, Waiting)
        assert answer.held == 1
        assert not held.lease.lost


async def no_overlap(store: RedisLockStore, lock: LockId, fault: Callable[[], object]) -> None:
    """The fault takes the lock from its holder, who knows it by the time that another one is granted it."""
    async with holding(store, lock, LEASE) as held:
        await asyncio.to_thread(fault)
        async with holding(store, lock, LEASE) as next_one:
            assert held.lease.lost
            assert not next_one.lease.lost
            assert next_one.lease.token > held.lease.token


async def overlap(store: RedisLockStore, lock: LockId, fault: Callable[[], object]) -> None:
    """The fault takes the lock from its holder, who learns it when renewing: another one has it by then.

    The other one's token is higher, so that the resource can tell them apart.
    """
    async with holding(store, lock, LONG) as held:
        await asyncio.to_thread(fault)
        async with holding(store, lock, LEASE) as next_one:
            assert not held.lease.lost
            assert next_one.lease.token > held.lease.token
            assert not await until_answered(lambda: store.renew(held.claim, lease=LONG))


async def never_granted(store: RedisLockStore, lock: LockId) -> None:
    """Whoever asks goes on waiting, and leaves nothing behind."""
    async with waiting(store, new_claim(lock), interval=0.05, lease=LEASE) as granted:
        done, _ = await asyncio.wait({granted}, timeout=1)
        assert not done

    async def empty() -> bool:
        return not (await until_answered(lambda: store.inspect(lock))).holders

    await eventually(empty, "the end of what was not confirmed")


def warnings(logs: list[Any]) -> list[str]:
    """What has been said aloud of the replicas."""
    return [entry["event"] for entry in logs if entry["event"] == "lock.not_replicated"]


@pytest.mark.parametrize("profile", ["primary", "failover", "strict"])
async def test_a_replica_in_sync_takes_over(profile: str) -> None:
    """In every profile: the holder goes on holding, and nobody else is granted the lock."""
    with pair() as servers:
        async with open_store(servers.url, durability=profile, lease=5) as store:
            lock = await known_lock(store)

            def fault() -> None:
                if profile == "primary":
                    servers.settle()
                servers.fail_over(0)
                if profile == "strict":
                    servers.add_replica()

            await holder_stays(store, lock, fault)


@pytest.mark.parametrize("profile", ["primary", "failover", "strict"])
async def test_a_planned_failover(profile: str) -> None:
    """In every profile: the holder goes on holding, since nothing is lost when the primary hands over."""
    with pair() as servers:
        async with open_store(servers.url, durability=profile, lease=5) as store:
            await holder_stays(store, await known_lock(store), servers.hand_over)


@pytest.mark.parametrize("profile", ["primary", "failover"])
async def test_a_replica_that_is_behind_takes_over(profile: str) -> None:
    """The grant is forgotten, and the grace bridges the time until its holder is told: no overlap."""
    with pair() as servers:
        async with open_store(servers.url, durability=profile, lease=5) as store:
            lock = await known_lock(store)
            servers.settle()
            servers.cut_off(0)
            with capture_logs() as logs:
                await no_overlap(store, lock, lambda: servers.fail_over(0))
            assert bool(warnings(logs)) == (profile == "failover")


@pytest.mark.parametrize("profile", ["primary", "failover"])
async def test_a_replica_that_has_never_heard_of_the_lock_takes_over(profile: str) -> None:
    """With the first grant of a lock all of it is forgotten, so no grace bridges anything: an overlap.

    In failover it takes that no replica confirmed the grant, and a warning has said so.
    """
    with pair() as servers:
        async with open_store(servers.url, durability=profile, lease=5) as store:
            servers.cut_off(0)
            with capture_logs() as logs:
                await overlap(store, new_claim().lock, lambda: servers.fail_over(0))
            assert bool(warnings(logs)) == (profile == "failover")


async def test_strict_grants_nothing_that_may_be_forgotten() -> None:
    """With a replica behind, nothing is granted, and what was not confirmed is given back."""
    with pair(2) as servers:
        async with open_store(servers.url, durability="strict", lease=5) as store:
            lock = await known_lock(store)
            servers.cut_off(1)
            await never_granted(store, lock)


async def test_failover_makes_use_of_the_replica_that_confirmed() -> None:
    """With one of two behind, the one that is promoted, which is the one with more data, knows the grant."""
    with pair(2) as servers:
        async with open_store(servers.url, durability="failover", lease=5) as store:
            await known_lock(store)
            servers.cut_off(1)
            with capture_logs() as logs:
                await holder_stays(store, new_claim().lock, lambda: servers.fail_over(0))
            assert not warnings(logs)


@pytest.mark.parametrize("known", [True, False])
async def test_the_replica_that_did_not_confirm_takes_over(known: bool) -> None:
    """Against the rule that the one with more data is promoted: the grace helps a lock that it knows."""
    with pair(2) as servers:
        async with open_store(servers.url, durability="failover", lease=5) as store:
            lock = await known_lock(store)
            servers.settle()
            servers.cut_off(1)
            if known:
                await no_overlap(store, lock, lambda: servers.fail_over(1))
            else:
                await overlap(store, new_claim().lock, lambda: servers.fail_over(1))


async def test_a_primary_that_wants_replicas_grants_nothing_alone() -> None:
    """With min-replicas-to-write the primary itself refuses what would be lost, in every profile."""
    with pair(1, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1") as servers:
        async with open_store(servers.url, durability="primary", lease=5) as store:
            await known_lock(store)
            servers.cut_off(0)
            await eventually(lambda: _refuses(servers), "the primary to notice", 10)
            await never_granted(store, new_claim().lock)


def _refuses(servers: Pair) -> bool:
    try:
        command(servers.primary, "SET", "pair:probe", 1)
    except redis.ResponseError as error:
        return str(error).startswith("NOREPLICAS")
    return False


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_a_process_crash_with_a_log(fsync: str) -> None:
    """A server that is killed and starts again from its log knows its holders."""
    with RedisServer("--appendonly", "yes", "--appendfsync", fsync) as server:
        async with open_store(server, lease=5) as store:
            lock = new_claim().lock

            def fault() -> None:
                server.kill()
                server.start()

            await holder_stays(store, lock, fault)


@pytest.mark.parametrize("known", [True, False])
async def test_a_machine_crash_with_a_log_of_every_second(known: bool) -> None:
    """The end of the log is lost: the grace helps a lock that stands in the rest of it."""
    with RedisServer("--appendonly", "yes", "--appendfsync", "everysec") as server:
        async with open_store(server, lease=5) as store:
            lock = await known_lock(store)
            log, size = _log_of(server)

            def fault() -> None:
                server.kill()
                os.truncate(log, size)
                server.start()

            if known:
                await no_overlap(store, lock, fault)
            else:
                await overlap(store, new_claim().lock, fault)


def _log_of(server: RedisServer) -> tuple[Path, int]:
    """The server's log, and how long it is."""
    (log,) = server.directory.rglob("*.incr.aof")
    return log, log.stat().st_size


async def test_a_crash_without_a_log() -> None:
    """All is forgotten, so the lock is granted again at once: an overlap, until the first holder renews."""
    with RedisServer() as server:
        async with open_store(server, lease=5) as store:
            lock = await known_lock(store)

            def fault() -> None:
                server.kill()
                server.start()

            await overlap(store, lock, fault)


async def test_deleting_everything() -> None:
    """FLUSHALL is a crash without a log, in every profile: replicas delete it as well."""
    with pair() as servers:
        async with open_store(servers.url, durability="strict", lease=5) as store:
            await overlap(store, await known_lock(store), lambda: command(servers.primary, "FLUSHALL"))
