"""Redis behind Sentinel: the way to the primary, and what happens when there is another one."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta

import pytest
import redis
from patience import waiting
from redis_tools import connections, eventually, new_claim, open_store, settings_for, take, until_answered
from servers import SentinelSet, command, info
from slot_moves import hung
from structlog.testing import capture_logs
from topologies import in_sync

from lock_interceptor import LockConfigurationError, LockSettings, LockStoreUnavailable
from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.store import Claim, Granted, Waiting

PASSWORDS = {"password": "of-the-data", "sentinel_password": "of-the-sentinels"}
LEASE = timedelta(seconds=5)
"""Longer than a failover takes here."""


@pytest.fixture(scope="module")
def servers() -> Iterator[SentinelSet]:
    """A set whose data and Sentinels have different passwords."""
    with SentinelSet(**PASSWORDS) as servers:
        yield servers


def _settings(servers: SentinelSet, **values: object) -> LockSettings:
    return settings_for(
        None,
        **{
            "redis_sentinel_hosts": servers.sentinel_hosts,
            "redis_password": servers.password,
            "redis_sentinel_password": servers.sentinel_password,
            "lease": LEASE,
            **values,
        },
    )


async def test_the_primary_is_found_and_nothing_stays_open(servers: SentinelSet) -> None:
    """Locks are kept at the primary; after closing, neither it nor a Sentinel has a connection of ours."""
    before = [len(connections(each, servers.sentinel_password)) for each in servers.sentinels]
    at_primary = len(connections(servers.primary, servers.password))
    async with open_store(_settings(servers)) as store:
        await store.check()
        claim = new_claim()
        async with store.wakeups(claim) as called:
            await take(store, claim)
            await eventually(called.is_set, "the subscription")
        assert len(connections(servers.primary, servers.password)) > at_primary
        await store.release(claim)

    def as_before() -> bool:
        now = [len(connections(each, servers.sentinel_password)) for each in servers.sentinels]
        return now == before and len(connections(servers.primary, servers.password)) == at_primary

    await eventually(as_before, "the end of all connections")


@pytest.mark.parametrize(
    ("change", "variable"),
    [
        ({"redis_sentinel_password": "wrong"}, "REDIS_SENTINEL_PASSWORD"),
        ({"redis_sentinel_password": None}, "REDIS_SENTINEL_PASSWORD"),
        ({"redis_sentinel_username": "nobody"}, "REDIS_SENTINEL_USERNAME"),
        ({"redis_password": "wrong"}, "REDIS_PASSWORD"),
        ({"redis_password": None}, "REDIS_PASSWORD"),
    ],
)
async def test_a_refused_login_names_whose_it_is(
    servers: SentinelSet, change: dict[str, object], variable: str
) -> None:
    """The error tells the login at the Sentinels from the one at the servers with the data."""
    async with open_store(_settings(servers, **change)) as store:
        with pytest.raises(LockConfigurationError, match=rf"mymaster \(Sentinel .*check .*{variable}"):
            await store.check()


async def test_an_unknown_service_is_named(servers: SentinelSet) -> None:
    """Sentinels that do not know the service are asked again, as after a failover, and the error names it."""
    async with open_store(_settings(servers, redis_sentinel_service="theirmaster")) as store:
        with pytest.raises(LockStoreUnavailable, match="theirmaster"):
            await store.check()


async def test_a_hung_sentinel_costs_little(servers: SentinelSet) -> None:
    """A Sentinel that is first in the list and hangs delays the first request by one timeout only."""
    hung = servers.sentinels[0]
    hung.pause()
    try:
        async with open_store(_settings(servers)) as store:
            start = time.monotonic()
            await until_answered(lambda: store.inspect(new_claim().lock))
            assert time.monotonic() - start < 4  # with redis-py's defaults it is a minute
    finally:
        hung.resume()


async def test_holding_and_waiting_go_on_after_a_failover() -> None:
    """A failover shorter than the lease takes no lock away, and for one lease gives nobody a new one."""
    with SentinelSet() as servers:
        settings = _settings(servers, redis_sentinel_password=None)
        async with open_store(settings) as store:
            await store.check()
            held, pair = new_claim(), new_claim(limit=2)
            async with (
                waiting(store, held, interval=0.5, lease=LEASE) as holding,
                waiting(store, pair, interval=0.5, lease=LEASE) as holding_one_of_two,
            ):
                leases = [(await holding).lease, (await holding_one_of_two).lease]
                async with waiting(store, new_claim(held.lock), interval=0.5, lease=LEASE) as next_one:
                    await _wait_for_replicas(servers, settings, held, pair)
                    servers.primary.kill()
                    await asyncio.to_thread(servers.wait_for_failover, servers.primary.port)
                    # the second slot of the pair is free, but its grant may have been forgotten
                    second = new_claim(pair.lock, limit=2)
                    answer = await until_answered(lambda: store.acquire(second, lease=LEASE))
                    assert isinstance(answer, Waiting)
                    assert answer.settling is not None
                    assert answer.held == 1
                    settled = time.monotonic() + answer.settling.total_seconds()
                    assert answer.settling <= LEASE
                    await eventually(lambda: _granted(store, second), "the end of the grace")
                    assert time.monotonic() > settled - 0.05
                    assert not any(lease.lost for lease in leases)
                    assert not next_one.done()
                    assert await until_answered(lambda: store.release(held))
                    await asyncio.wait_for(next_one, 10)


async def test_each_failover_brings_one_grace() -> None:
    """Failovers on demand: after each one lease without new grants, while holders renew and tokens rise."""
    short = timedelta(seconds=1)
    with SentinelSet() as servers:
        settings = _settings(servers, redis_sentinel_password=None)
        async with open_store(settings) as store:
            held = new_claim(limit=3)
            token = (await take(store, held, short)).token
            assert await store.renew(held, lease=10 * LEASE)
            for _ in range(2):
                await _wait_for_replicas(servers, settings, held)
                await eventually(lambda: _fails_over(servers), "a failover on demand", 20)
                old = servers.primary
                await asyncio.to_thread(servers.wait_for_failover, old.port)
                # the old primary goes on as one for ten seconds, but without replicas
                await eventually(lambda: _alone(old), "the end of its replicas")  # noqa: B023 - awaited here
                claim, other = new_claim(held.lock, limit=3), new_claim(held.lock, limit=3)
                answer = await until_answered(lambda: store.acquire(claim, lease=short))  # noqa: B023 - awaited
                assert isinstance(answer, Waiting)
                assert timedelta(0) < answer.settling <= short
                assert await store.renew(held, lease=10 * LEASE)
                await eventually(lambda: _granted(store, claim, short), "the end of the grace")  # noqa: B023
                after = await until_answered(lambda: take(store, other, short))  # noqa: B023 - awaited
                assert after.token > token
                token = after.token


def _alone(server: RedisServer) -> bool:
    facts = info(server, "replication")
    return facts["role"] == "slave" or facts["connected_slaves"] == "0"


def _fails_over(servers: SentinelSet) -> bool:
    """Ask for it; while a Sentinel is busy with the one before it refuses, which is an error."""
    try:
        return servers.ask(servers.sentinels[0], "FAILOVER", servers.service) == "OK"
    except redis.ResponseError:
        return False


async def test_replicas_that_hang_are_done_without() -> None:
    """By default locks are granted while no replica confirms them, with one warning, if a Sentinel agrees."""
    with SentinelSet() as servers, ExitStack() as stack:
        settings = _settings(servers, redis_sentinel_password=None)
        async with open_store(settings) as store:
            held = new_claim()
            await eventually(lambda: in_sync(servers.primary, 2, "test"), "replicas in sync")
            await take(store, held)
            for replica in servers.replicas:
                stack.enter_context(hung(replica))
            with capture_logs() as logs:
                for _ in range(3):
                    await take(store, new_claim())
            assert [entry["event"] for entry in logs] == ["lock.not_replicated"]
            for sentinel in servers.sentinels:
                stack.enter_context(hung(sentinel))
            with pytest.raises(LockStoreUnavailable):
                await store.acquire(new_claim(), lease=LEASE)
            assert await store.renew(held, lease=LEASE)


async def _granted(store: RedisLockStore, claim: Claim, lease: timedelta = LEASE) -> bool:
    return isinstance(await until_answered(lambda: store.acquire(claim, lease=lease)), Granted)


async def _wait_for_replicas(servers: SentinelSet, settings: LockSettings, *claims: Claim) -> None:
    """Wait until both replicas have the locks: what they do not have yet, a failover forgets."""
    keys = [lock_key(settings.key_prefix, claim.lock) for claim in claims]

    def have_all() -> bool:
        data = (servers.primary, *servers.replicas)
        with suppress(redis.ConnectionError):  # Sentinel cuts all connections to one that it makes a replica
            cards = [[command(each, "ZCARD", key) for key in keys] for each in data]
            return 0 not in cards[0] and cards[0] == cards[1] == cards[2]
        return False

    await eventually(have_all, "replication of the locks")
