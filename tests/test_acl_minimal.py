"""The least rights are the least: without any one of them something is missing, and it is said what."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from acl_users import PASSWORD, USER, allow, is_present
from patience import waiting
from redis_tools import eventually, new_claim, open_store, settings_for, take
from rights import least_commands, least_rights, sentinel_rights
from servers import ClusterSet, SentinelSet, command, redis_binaries, require_redis

from lock_interceptor import LockConfigurationError
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.redis_store import wakeups

TOLD_LATER = {"info", "ping", "unsubscribe"}
"""What a check does not find: without these, locks are kept all the same."""


@pytest.fixture(scope="module", params=["valkey", "redis"])
def binary(request: pytest.FixtureRequest) -> Path:
    """A server of each kind."""
    return require_redis() if request.param == "redis" else redis_binaries()["valkey"]


@pytest.fixture(scope="module")
def server(binary: Path) -> Iterator[RedisServer]:
    with RedisServer(binary=binary) as server:
        yield server


def _warnings(events: list[Any], name: str) -> list[str]:
    found = [event for event in events if event["event"] == name]
    assert all(event["log_level"] == "warning" for event in found)
    return [str(event.get("error", "")) for event in found]


@pytest.mark.parametrize("missing", sorted({*least_commands("failover")} - TOLD_LATER))
async def test_a_missing_command_is_found_by_a_check(server: RedisServer, missing: str) -> None:
    """The check fails for a user that lacks any one command, and says where to look."""
    command(server, "SCRIPT", "FLUSH")
    url = allow(server, *least_rights(profile="failover", database=False), f"-{missing}")
    async with open_store(url, durability="failover" if missing == "wait" else "primary") as store:
        with pytest.raises(LockConfigurationError, match=f"may not do what a lock needs at {HOST}"):
            await store.check()


@pytest.mark.parametrize("missing", ["resetkeys", "resetchannels"])
async def test_missing_keys_or_channels_are_found_by_a_check(server: RedisServer, missing: str) -> None:
    """The check fails for a user that may not touch the locks' keys or channels, naming the prefix."""
    url = allow(server, *least_rights(), missing)
    async with open_store(url) as store:
        with pytest.raises(LockConfigurationError, match="LOCK_KEY_PREFIX"):
            await store.check()


async def test_without_info_a_failover_goes_unnoticed_and_that_is_said(server: RedisServer) -> None:
    """INFO may be missing, as at some hosted servers: locks work, and one warning tells the price."""
    url = allow(server, *least_rights(), "-info")
    with structlog.testing.capture_logs() as events:
        async with open_store(url) as store:
            await store.check()
            await take(store, new_claim())
            await take(store, new_claim())
    warnings = [event["event"] for event in events if event["log_level"] == "warning"]
    assert warnings == ["lock.info_forbidden"]


async def test_without_channels_locks_work_by_polling(server: RedisServer) -> None:
    """A right to channels that is missing costs speed only: nothing leaks, and one warning says so."""
    url = allow(server, *least_rights(), "resetchannels")
    with structlog.testing.capture_logs() as events:
        async with open_store(url) as store:
            holder = new_claim()
            await take(store, holder)
            async with waiting(store, new_claim(holder.lock), interval=0.2) as granted:
                await eventually(lambda: is_present(store, holder), "a waiter")
                await store.release(holder)
                await granted
    (refused,) = _warnings(events, "lock.wakeups_refused")
    assert "channels" in refused


async def test_without_ping_a_silent_connection_is_given_up(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may not ask whether a silent connection lives is told that there are no wake-ups any more."""
    monkeypatch.setattr(wakeups, "SILENCE", 0.1)
    url = allow(server, *least_rights(), "-ping")
    with structlog.testing.capture_logs() as events:
        async with open_store(url) as store, store.wakeups(new_claim()) as listening:
            await eventually(listening.is_set, "the subscription")
            await eventually(lambda: _warnings(events, "lock.wakeups_refused"), "the denied ping")
    (refused,) = _warnings(events, "lock.wakeups_refused")
    assert "ping" in refused


async def test_without_unsubscribe_the_first_who_leaves_ends_the_wake_ups(server: RedisServer) -> None:
    """A connection that may not let a channel go is given up, and that is said."""
    url = allow(server, *least_rights(), "-unsubscribe")
    with structlog.testing.capture_logs() as events:
        async with open_store(url) as store, store.wakeups(new_claim()) as staying:
            await eventually(staying.is_set, "the subscription")
            async with store.wakeups(new_claim()) as leaving:
                await eventually(leaving.is_set, "the other subscription")
            await eventually(lambda: _warnings(events, "lock.wakeups_refused"), "the denied unsubscribing")
    (refused,) = _warnings(events, "lock.wakeups_refused")
    assert "unsubscribe" in refused


@pytest.fixture(scope="module")
def cluster(binary: Path) -> Iterator[ClusterSet]:
    with ClusterSet(binary=binary) as servers:
        yield servers


@pytest.mark.parametrize("missing", ["cluster|slots", "command"])
async def test_what_a_cluster_needs_is_found_by_a_check(cluster: ClusterSet, missing: str) -> None:
    """The check fails for a user that may not ask for a Cluster's map, or for its commands."""
    for node in cluster.nodes:
        url = allow(node, *least_rights(cluster=True, database=False), f"-{missing}")
    async with open_store(url, redis_cluster=True) as store:
        with pytest.raises(LockConfigurationError, match="may not do what a lock needs"):
            await store.check()


async def test_what_a_strict_cluster_needs_is_found_by_a_check(cluster: ClusterSet) -> None:
    """``strict`` has to know how many replicas there are: the check fails when the nodes may not tell."""
    for node in cluster.nodes:
        url = allow(node, *least_rights(cluster=True, database=False), "-cluster|nodes")
    async with open_store(url, redis_cluster=True, durability="strict") as store:
        with pytest.raises(LockConfigurationError, match="may not do what a lock needs"):
            await store.check()


async def test_a_right_that_is_missing_at_the_sentinels_is_told(binary: Path) -> None:
    """The check fails for a user that may not ask the Sentinels, and names the variable of that user."""
    with SentinelSet(binary) as servers:
        for sentinel in servers.sentinels:
            allow(sentinel, *sentinel_rights(), "-sentinel|masters")
        login = {"redis_sentinel_username": USER, "redis_sentinel_password": PASSWORD}
        settings = settings_for(None, redis_sentinel_hosts=servers.sentinel_hosts, **login)
        async with open_store(settings) as store:
            with pytest.raises(LockConfigurationError, match="REDIS_SENTINEL_USERNAME") as refused:
                await store.check()
    assert "sentinel|masters" in str(refused.value)
