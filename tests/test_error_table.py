"""What real servers say in trouble, as which of our errors it arrives, and that no slot leaks meanwhile."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis_troubles as troubles
from patience import waiting
from redis_tools import LEASE, QUEUEING, eventually, line_length, new_claim, open_store, take, until_answered
from rights import IN_SCRIPTS, least_rights
from servers import command, redis_binaries, require_redis
from structlog.testing import capture_logs

from lock_interceptor import LockConfigurationError, LockError, LockStoreUnavailable
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.redis_store.errors import translated
from lock_interceptor.store import Claim

PASSWORD = "few-rights"  # noqa: S105 - of servers that live for a moment


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server of each kind that can be troubled."""
    binary = require_redis() if request.param == "redis" else redis_binaries()["valkey"]
    with RedisServer(*troubles.NEEDS, binary=binary) as server:
        yield server


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisLockStore]:
    async with open_store(server) as store:
        yield store


Call = Callable[[RedisLockStore, Claim], Any]
CALLS: dict[str, Call] = {
    "acquire": lambda store, claim: store.acquire(claim, lease=LEASE, queueing=QUEUEING),
    "renew": lambda store, claim: store.renew(claim, lease=LEASE),
    "park": lambda store, claim: store.park(claim, keep=LEASE),
    "release": lambda store, claim: store.release(claim),
    "inspect": lambda store, claim: store.inspect(claim.lock),
}


@dataclass(frozen=True)
class Row:
    """A trouble, what fails in it, and what the error says."""

    trouble: troubles.Trouble
    fails: frozenset[str]
    says: str


ALL = frozenset(CALLS)
WRITES = ALL - {"inspect"}
ROWS = [
    Row(troubles.no_memory, frozenset({"acquire"}), r"memory.*make room or raise maxmemory"),
    Row(troubles.too_few_replicas, WRITES, r"NOREPLICAS.*look at its replicas, and at min-replicas-to-write"),
    Row(troubles.cannot_save, WRITES, r"MISCONF.*look at its log and at its disk"),
    Row(troubles.busy, ALL, r"BUSY.*SCRIPT KILL ends what blocks it"),
    Row(troubles.loading, ALL, r"loading.*it serves when it has loaded its data"),
    Row(troubles.is_replica, WRITES, r"read only replica.*lead to the primary"),
    Row(troubles.stale_replica, ALL, r"replica.*lead to the primary"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.trouble.__name__)
async def test_trouble_that_passes(server: RedisServer, store: RedisLockStore, row: Row) -> None:
    """What fails is "unavailable" and says what helps, the rest goes on; afterwards all is as it was."""
    held, others = new_claim(limit=2), [new_claim() for _ in CALLS]
    await take(store, held)
    for claim in others:
        await take(store, claim)
    newcomer = new_claim(held.lock, limit=2)
    with row.trouble(server):
        for (name, call), claim in zip(CALLS.items(), others, strict=True):
            error = await _error(call(store, newcomer if name == "acquire" else claim))
            assert (error is not None) == (name in row.fails), (name, error)
            if error is not None:
                assert type(error) is LockStoreUnavailable
                assert error.__cause__ is not None
                assert re.search(f"^Redis at {HOST}.*{row.says}", str(error)), error
    assert await until_answered(lambda: store.renew(held, lease=LEASE))
    holders = await until_answered(lambda: store.inspect(held.lock))
    assert [holder.owner for holder in holders.holders] == [held.owner]
    for claim in (held, *others):
        await until_answered(lambda: store.release(claim))  # noqa: B023 - awaited here


async def _error(request: Any) -> LockError | None:
    try:
        await request
    except LockError as error:
        return error
    return None


async def test_no_more_connections(server: RedisServer, store: RedisLockStore) -> None:
    """Who has a connection goes on; who needs one is told of maxclients, and gets in when there is room."""
    held, newcomer = new_claim(limit=2), None
    await take(store, held)
    assert await store.renew(held, lease=LEASE)  # on a connection of its own
    async with open_store(server) as late:
        newcomer = new_claim(held.lock, limit=2)
        with troubles.crowded(server):
            texts: list[str] = []

            async def told() -> bool:
                texts.append(str(await _error(CALLS["acquire"](late, newcomer))))
                # a server may close the connection before the client has read why
                return "raise maxclients" in texts[-1] or "have reached its maxclients" in texts[-1]

            await eventually(told, "an error that says why")
            assert await store.renew(held, lease=LEASE)
            assert len((await store.inspect(held.lock)).holders) == 1
        await until_answered(lambda: late.acquire(newcomer, lease=LEASE))
        assert len((await store.inspect(held.lock)).holders) == 2


async def test_a_script_that_is_killed_goes_unnoticed(server: RedisServer, store: RedisLockStore) -> None:
    """Somebody's script blocks the server and is killed: the holder holds, and the waiter gets its turn."""
    with capture_logs() as logs:
        async with waiting(store, new_claim(), lease=LEASE) as first:
            held = (await first).claim
            async with waiting(store, new_claim(held.lock)) as second:
                await eventually(lambda: line_length(store, held), "a waiter")
                with troubles.busy(server):
                    assert await _error(store.renew(held, lease=LEASE))
                assert await until_answered(lambda: store.release(held))
                await asyncio.wait_for(second, 10)
    assert "lock.lost" not in [entry["event"] for entry in logs]


@pytest.mark.parametrize("missing", sorted({*IN_SCRIPTS} - {"info", "publish"}))
async def test_a_missing_right_leaks_no_slot(
    server: RedisServer, store: RedisLockStore, missing: str
) -> None:
    """Whichever command is forbidden inside the script, the request fails for good and nobody holds."""
    command(server, "ACL", "SETUSER", "few", "reset", f">{PASSWORD}", *least_rights(), f"-{missing}")
    url = f"redis://few:{PASSWORD}@{HOST}:{server.port}/0"
    holder, other = new_claim(limit=2), new_claim()
    await take(store, holder)
    async with open_store(url) as poor:
        for claim in (new_claim(holder.lock, limit=2), other):
            error = await _error(poor.acquire(claim, lease=LEASE, queueing=QUEUEING))
            assert error is None or type(error) is LockConfigurationError
            if error is not None:
                holders = (await store.inspect(claim.lock)).holders
                assert claim.owner not in [each.owner for each in holders]
    command(server, "ACL", "DELUSER", "few")


@pytest.fixture
def no_slots(server: RedisServer) -> Iterator[RedisServer]:
    """A Cluster of one node that serves no slot."""
    binary = redis_binaries()["valkey" if "valkey" in str(server._binary) else "redis"]  # noqa: SLF001
    with RedisServer("--cluster-enabled", "yes", binary=binary) as node:
        yield node


@pytest.mark.parametrize("cluster", [True, False])
async def test_cluster_that_is_down(no_slots: RedisServer, cluster: bool) -> None:
    """Slots that nobody serves are "unavailable", and the error leads to CLUSTER INFO."""
    async with open_store(no_slots, redis_cluster=cluster) as store:
        for call in CALLS.values():
            error = await _error(call(store, new_claim()))
            assert type(error) is LockStoreUnavailable
        assert "CLUSTER INFO" in str(error)


async def test_no_cluster_for_a_cluster_client(server: RedisServer) -> None:
    """REDIS_CLUSTER at a server that belongs to none is a mistake in the settings."""
    async with open_store(server, redis_cluster=True) as wrong:
        with pytest.raises(LockConfigurationError, match="set REDIS_CLUSTER=false"):
            await wrong.check()


def test_what_nobody_expects() -> None:
    """A mistake of a library counts as "no answer", and is logged with the way to it, but no variables."""
    with capture_logs() as logs, pytest.raises(LockStoreUnavailable) as raised, translated("somewhere"):
        _mistake("hush")
    assert str(raised.value) == "Redis at somewhere: RuntimeError('odd')"
    assert isinstance(raised.value.__cause__, RuntimeError)
    (entry,) = logs
    assert (entry["event"], entry["log_level"]) == ("lock.unexpected_error", "warning")
    assert "in _mistake" in entry["traceback"]
    assert "hush" not in str(entry).replace('_mistake("hush")', "")


def _mistake(password: str) -> None:
    raise RuntimeError("odd" if password else "")
