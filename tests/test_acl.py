"""Users with few rights: the least that is enough, and what is said when one is missing."""

import re
from collections.abc import AsyncIterator, Iterator
from importlib.resources import files

import pytest
import structlog
from patience import waiting
from redis_tools import eventually, new_claim, open_store, stand_in_line, take
from rights import IN_SCRIPTS, SENT, least_rights
from servers import ClusterSet, command, info, redis_binaries, require_redis, wait_until

from lock_interceptor import LockConfigurationError
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.redis_store import RedisLockStore

PASSWORD = "few-rights"  # noqa: S105 - of servers that live for a moment


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server of each kind."""
    binary = require_redis() if request.param == "redis" else redis_binaries()["valkey"]
    with RedisServer(binary=binary) as server:
        yield server


def _allow(server: RedisServer, *rules: str) -> str:
    """Make the user anew and return the URL for it."""
    command(server, "ACL", "DELUSER", "few")
    command(server, "ACL", "SETUSER", "few", f">{PASSWORD}", *rules)
    command(server, "ACL", "LOG", "RESET")
    return f"redis://few:{PASSWORD}@{HOST}:{server.port}/0"


def _denied(server: RedisServer) -> set[str]:
    """What the server has denied since the user was made."""
    entries = (dict(zip(entry[::2], entry[1::2], strict=True)) for entry in command(server, "ACL", "LOG"))
    return {entry["object"] for entry in entries} - {"client|setinfo"}


async def _use_everything(store: RedisLockStore) -> None:
    """Every operation of a store on one lock, and a wake-up."""
    holder = new_claim()
    parked, waiter = new_claim(holder.lock), new_claim(holder.lock)
    await store.check()
    await take(store, holder)
    assert await store.renew(holder, lease=(await store.inspect(holder.lock)).holders[0].lease_left)
    await stand_in_line(store, parked)
    await store.park(parked, keep=(await store.inspect(holder.lock)).holders[0].lease_left)
    async with waiting(store, waiter) as granted:
        await eventually(lambda: _present(store, holder), "a waiter")
        async with store.wakeups(new_claim(holder.lock)) as listening:
            await eventually(listening.is_set, "the subscription")
            await store.release(holder)
            await granted
    assert not await store.release(holder)


async def _present(store: RedisLockStore, claim: object) -> bool:
    return any(waiter.present for waiter in (await store.inspect(claim.lock)).waiters)


async def test_the_least_rights_are_enough(server: RedisServer) -> None:
    """Under the documented rules everything works, without a warning here or a denial at the server."""
    url = _allow(server, *least_rights())
    with structlog.testing.capture_logs() as events:
        async with open_store(url) as store:
            await _use_everything(store)
        async with open_store(url.removesuffix("0") + "3") as store:
            await store.check()
    assert not [event for event in events if event["log_level"] not in ("debug", "info")]
    assert not _denied(server)


def test_the_list_has_what_the_scripts_call() -> None:
    """No command of the scripts is missing in the documented list, and none is there in vain."""
    folder = files("lock_interceptor.redis_store") / "scripts"
    texts = [file.read_text("utf-8") for file in folder.iterdir()]
    called = {name.lower() for text in texts for name in re.findall(r"call\('([A-Z]+)'", text)}
    assert called == set(IN_SCRIPTS)


async def test_the_prefix_is_part_of_the_rules(server: RedisServer) -> None:
    """Rules for another prefix do for a store with that prefix, and for no other."""
    url = _allow(server, *least_rights("app7"))
    async with open_store(url, key_prefix="app7") as store:
        await _use_everything(store)
    async with open_store(url) as store:
        with pytest.raises(LockConfigurationError, match="LOCK_KEY_PREFIX"):
            await store.check()


@pytest.mark.parametrize("missing", sorted({*SENT, *IN_SCRIPTS} - {"info", "ping", "unsubscribe"}))
async def test_a_missing_command_is_found_by_a_check(server: RedisServer, missing: str) -> None:
    """The check fails for a user that lacks any one command, and says where to look."""
    command(server, "SCRIPT", "FLUSH")
    url = _allow(server, *least_rights(), f"-{missing}")
    async with open_store(url) as store:
        with pytest.raises(LockConfigurationError, match=f"may not do what a lock needs at {HOST}"):
            await store.check()


@pytest.mark.parametrize("missing", ["resetkeys", "resetchannels"])
async def test_missing_keys_or_channels_are_found_by_a_check(server: RedisServer, missing: str) -> None:
    """The check fails for a user that may not touch the locks' keys or channels, naming the prefix."""
    url = _allow(server, *least_rights(), missing)
    async with open_store(url) as store:
        with pytest.raises(LockConfigurationError, match="LOCK_KEY_PREFIX"):
            await store.check()


async def test_without_info_a_failover_goes_unnoticed_and_that_is_said(server: RedisServer) -> None:
    """INFO may be missing, as at some hosted servers: locks work, and one warning tells the price."""
    url = _allow(server, *least_rights(), "-info")
    with structlog.testing.capture_logs() as events:
        async with open_store(url) as store:
            await store.check()
            await take(store, new_claim())
            await take(store, new_claim())
    warnings = [event["event"] for event in events if event["log_level"] == "warning"]
    assert warnings == ["lock.info_forbidden"]


async def test_without_channels_locks_work_by_polling(server: RedisServer) -> None:
    """A right to channels that is missing costs speed only: nothing leaks, and one warning says so."""
    url = _allow(server, *least_rights(), "resetchannels")
    with structlog.testing.capture_logs() as events:
        async with open_store(url) as store:
            holder = new_claim()
            await take(store, holder)
            async with waiting(store, new_claim(holder.lock), interval=0.2) as granted:
                await eventually(lambda: _present(store, holder), "a waiter")
                await store.release(holder)
                await granted
    refused = [event for event in events if event["event"] == "lock.wakeups_refused"]
    assert len(refused) == 1
    assert "channels" in refused[0]["error"]


async def test_the_least_rights_are_enough_in_a_cluster(least_rights_cluster: str) -> None:
    """In a Cluster two more commands are needed."""
    with structlog.testing.capture_logs() as events:
        async with open_store(least_rights_cluster, redis_cluster=True) as store:
            for _ in range(5):
                await _use_everything(store)
    assert not [event for event in events if event["log_level"] not in ("debug", "info")]


@pytest.fixture
async def least_rights_cluster() -> AsyncIterator[str]:
    with ClusterSet(replicas=1) as servers:
        for node in servers.nodes[:3]:
            wait_until(lambda node=node: info(node, "replication")["connected_slaves"] == "1", "a replica")
        for node in servers.nodes:
            url = _allow(node, *least_rights(cluster=True))
        yield url
        assert not any(map(_denied, servers.nodes))
