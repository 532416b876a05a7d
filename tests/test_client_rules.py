"""Every request is sent once, and ends within a bound of our own, whatever hangs."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from redis_tools import LEASE, connections, eventually, new_claim, open_store, settings_for, take
from servers import ClusterSet, SentinelSet, command, info

from lock_interceptor import LockSettings, LockStoreUnavailable
from lock_interceptor.dev import RedisServer

SCRIPTS = ("cmdstat_evalsha", "cmdstat_eval")


def _count(server: RedisServer, *names: str) -> int:
    """How many of these commands the server has executed."""
    stats = info(server, "commandstats")
    return sum(int(stats[name].split(",")[0].removeprefix("calls=")) for name in {*names} & stats.keys())


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelSet]:
    """A set that is too patient to fail over while a test lasts."""
    with SentinelSet() as servers:
        for each in servers.sentinels:
            servers.ask(each, "SET", servers.service, "down-after-milliseconds", 60_000)
        yield servers


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSet]:
    """Three nodes without replicas."""
    with ClusterSet() as servers:
        yield servers


@pytest.fixture(params=["alone", "behind Sentinel", "in a Cluster"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[LockSettings, list[RedisServer]]]:
    """Settings for each kind of Redis, and all servers that may get a request."""
    if request.param == "alone":
        with RedisServer() as server:
            yield settings_for(server.url, lease=10), [server]
    elif request.param == "in a Cluster":
        nodes: ClusterSet = request.getfixturevalue("cluster")
        yield settings_for(nodes.url, redis_cluster=True, durability="primary", lease=10), nodes.nodes
    else:
        servers: SentinelSet = request.getfixturevalue("sentinels")
        values = {"redis_sentinel_hosts": servers.sentinel_hosts, "durability": "primary", "lease": 10}
        yield settings_for(None, **values), [servers.primary]


async def test_no_request_is_sent_twice(place: tuple[LockSettings, list[RedisServer]]) -> None:
    """A request whose connection breaks fails, and does not reach the server again on another connection."""
    settings, servers = place
    async with open_store(settings) as store:
        claim = new_claim()
        await take(store, claim)
        assert await store.renew(claim, lease=LEASE)
        before = _executed(servers)
        _send_all(servers, "CLIENT", "PAUSE", 10_000, "WRITE")
        request = asyncio.create_task(store.renew(claim, lease=LEASE))
        await eventually(lambda: _cut_blocked(servers), "a request that the server holds back")
        _send_all(servers, "CLIENT", "UNPAUSE")
        with pytest.raises(LockStoreUnavailable):
            await request
        assert _executed(servers) == before
        assert await store.renew(claim, lease=LEASE)


async def test_a_hung_server_costs_a_bounded_time(place: tuple[LockSettings, list[RedisServer]]) -> None:
    """Whether it has to be connected to or not: a request fails soon, and was sent once if at all."""
    settings, servers = place
    async with open_store(settings) as store:
        claim = new_claim()
        await take(store, claim)
        assert await store.renew(claim, lease=LEASE)  # on a connection of its own
        before = _executed(servers)
        for sent in (1, 0):
            for server in servers:
                server.pause()
            start = time.monotonic()
            try:
                with pytest.raises(LockStoreUnavailable, match=r"no answer in time|connected"):
                    await store.renew(claim, lease=LEASE)
                assert time.monotonic() - start < 10
            finally:
                for server in servers:
                    server.resume()
            await eventually(lambda: _executed(servers) == before + sent, "the request")  # noqa: B023
            before += sent
            await store.close()
        await asyncio.sleep(0.2)  # for what should not come
        assert _executed(servers) == before


def _send_all(servers: list[RedisServer], *words: object) -> None:
    for server in servers:
        command(server, *words)


def _cut_blocked(servers: list[RedisServer]) -> bool:
    """Whether there was a request that a paused server holds back; its connection is cut."""
    for server in servers:
        for client in connections(server):
            if client["cmd"] == "evalsha" and "b" in client["flags"]:
                return bool(command(server, "CLIENT", "KILL", "ID", client["id"]))
    return False


def _executed(servers: list[RedisServer]) -> int:
    """How many scripts they have run."""
    return sum(_count(server, *SCRIPTS) for server in servers)


async def test_hung_sentinels_cost_one_timeout_each(sentinels: SentinelSet) -> None:
    """With every Sentinel hung a request fails soon, having asked each of them once."""
    settings = settings_for(None, redis_sentinel_hosts=sentinels.sentinel_hosts, lease=5)
    before = [_count(each, "cmdstat_sentinel|masters") for each in sentinels.sentinels]
    for each in sentinels.sentinels:
        each.pause()
    try:
        async with open_store(settings) as store:
            start = time.monotonic()
            with pytest.raises(LockStoreUnavailable):
                await store.inspect(new_claim().lock)
            assert time.monotonic() - start < 5  # with redis-py's defaults it is minutes
    finally:
        for each in sentinels.sentinels:
            each.resume()
    await asyncio.sleep(0.2)  # for what should not come
    after = [_count(each, "cmdstat_sentinel|masters") for each in sentinels.sentinels]
    assert all(now - then <= 1 for now, then in zip(after, before, strict=True))
