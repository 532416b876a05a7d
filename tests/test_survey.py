"""A look at all locks wherever they are, and taking one away, below the command line."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pytest
import redis
from hostile_text import anything, quiet
from hypothesis import given
from hypothesis import strategies as st
from lock_crowd import Crowd, put
from operator_cli import Operator
from redis_tools import LEASE, new_claim, open_store, settings_for, stand_in_line, take
from servers import ClusterSet, SentinelSet, command, wait_until
from slot_moves import SlotMove

from lock_interceptor import LockSettings
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.ops import cli, listing
from lock_interceptor.redis_store import survey as survey_module
from lock_interceptor.redis_store.keys import key_pattern, lock_key, read_key
from lock_interceptor.redis_store.survey import LockCounts, LockSurvey
from lock_interceptor.store import LockId

pytest_plugins = ["operator_fixtures"]


@pytest.fixture
async def survey(valkey: RedisServer) -> AsyncIterator[LockSurvey]:
    """A survey of the tests' Valkey."""
    survey = LockSurvey(settings_for(valkey.url))
    yield survey
    await survey.close()


async def found(survey: LockSurvey, application: str | None) -> dict[str, LockCounts]:
    """All that it finds, by label."""
    return {str(each.lock): each async for batch in survey.find(application) for each in batch}


@quiet
@given(application=anything, name=anything, key=st.none() | anything)
def test_a_key_tells_its_lock(application: str, name: str, key: str | None) -> None:
    """What is not too long comes back as it was, and all of it is found by its application's pattern."""
    try:
        lock = LockId(application, name, key)
        written = lock_key("lock", lock)
    except UnicodeEncodeError:  # half a surrogate pair, which no store takes
        return
    read = read_key("lock", written)
    assert read is not None
    if "~" not in written:
        assert (read.application, read.name, read.key) == (application, name, key)
    head, _, tail = key_pattern("lock", application).rpartition("*")
    assert written.startswith(head)
    assert written.endswith(tail)
    assert not set("*?[]\\^") & set(head)
    assert unquote(head).startswith("lock:1:{")


@pytest.mark.parametrize(
    "key", ["", "lock", "lock:1:{a}", "lock:2:{a:b}", "other:1:{a:b}", "lock:1:{a:b}:wake"]
)
def test_other_keys_are_no_locks(key: str) -> None:
    """Nothing else is taken for a lock."""
    assert read_key("lock", key) is None


async def test_counts_are_those_of_the_store(survey: LockSurvey, valkey: RedisServer) -> None:
    """Holders, waiters and parked ones are counted as ``inspect`` lists them, without those that are gone."""
    async with open_store(valkey) as store:
        holder, brief = new_claim(limit=2), new_claim()
        await take(store, holder)
        lock = holder.lock
        hot, parked, gone = (new_claim(lock) for _ in range(3))
        await take(store, new_claim(lock, limit=2))
        for claim in (hot, parked, gone):
            await stand_in_line(store, claim)
        await store.park(parked, keep=LEASE)
        await store.release(gone)
        await take(store, brief)
        await store.release(brief)
        state = await store.inspect(lock)
    counts = (await found(survey, "test"))[str(lock)]
    assert (
        (counts.held, counts.waiting, counts.present) == (2, 2, 1) == (len(state.holders), state.waiting, 1)
    )
    assert counts.longest_hold is not None
    assert counts.mean_hold is None
    details = await survey.look(survey.key_of(lock))
    assert details is not None
    assert [each.owner for each in details.state.holders] == [each.owner for each in state.holders]
    assert [each.waiter for each in details.state.waiters] == [hot.waiter, parked.waiter]
    assert await survey.look(survey.key_of(new_claim().lock)) is None


async def test_the_dead_do_not_count(survey: LockSurvey, valkey: RedisServer) -> None:
    """Leases and places whose time is over are left out, though nobody has cleaned up yet."""
    application = str(uuid4())
    put(valkey, [Crowd(LockId(application, "dead"), held=1, hot=1, parked=1, limit=1)])
    key = lock_key("lock", LockId(application, "dead"))
    with redis.Redis(host=HOST, port=valkey.port) as client:
        dead = {"h0": 1.5e12, "pw0": -1.5e12, "kw0": -1e14 - 1.5e12, "kw1": -1e14 - 1.5e12}
        client.zadd(key, dead)
    counts = (await found(survey, application))["dead"]
    assert (counts.held, counts.waiting, counts.present) == (0, 0, 0)
    assert counts.longest_hold is None
    assert not await survey.revoke(key, token=1, limit=1)


async def test_revoking_twice_does_it_once(survey: LockSurvey, valkey: RedisServer) -> None:
    """The second time there is nobody with that token; the holder's next renewal says that it is over."""
    async with open_store(valkey) as store:
        claim = new_claim()
        granted = await take(store, claim)
        key = survey.key_of(claim.lock)
        assert not await survey.revoke(key, token=granted.token - 1, limit=None)
        assert await store.renew(claim, lease=LEASE)
        assert await survey.revoke(key, token=granted.token, limit=None)
        assert not await survey.revoke(key, token=granted.token, limit=None)
        assert not await store.renew(claim, lease=LEASE)
        again = await take(store, new_claim(claim.lock))
        assert again.token > granted.token
        assert again.slot == 0


async def test_many_that_end_at_once_do_not_disturb(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that vanish between being found and being counted count as idle; none comes twice."""
    monkeypatch.setattr(survey_module, "SCAN_STEP", 10)
    application = str(uuid4())
    put(valkey, [Crowd(LockId(application, f"lock-{n}")) for n in range(300)])
    keys = [lock_key("lock", LockId(application, f"lock-{n}")) for n in range(100)]
    survey, seen = LockSurvey(settings_for(valkey.url)), list[str]()
    async with aclosing(survey.find(application)) as batches:
        async for batch in batches:
            seen += [each.redis_key for each in batch]
            command(valkey, "DEL", *keys)
    await survey.close()
    assert len(seen) == len(set(seen)) >= 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSet]:
    with ClusterSet() as servers:
        yield servers


@pytest.fixture(scope="module", params=["sentinel", "cluster"])
def servers(request: pytest.FixtureRequest) -> Iterator[SentinelSet | ClusterSet]:
    if request.param == "cluster":
        yield request.getfixturevalue("cluster")
        return
    with SentinelSet() as servers:
        yield servers


def address_of(servers: SentinelSet | ClusterSet) -> dict[str, Any]:
    """The settings, by variable."""
    if isinstance(servers, SentinelSet):
        return {"REDIS_URL": None, "REDIS_SENTINEL_HOSTS": servers.sentinel_hosts}
    return {"REDIS_URL": servers.url, "REDIS_CLUSTER": "true"}


def test_locks_are_found_on_every_primary(operator: Operator, servers: SentinelSet | ClusterSet) -> None:
    """Behind Sentinel and in a Cluster, whichever node has them, all locks are listed, shown and released."""
    operator.exports(**address_of(servers))
    names = [f"lock-{n}" for n in range(12)]

    async def hold() -> None:
        async with open_store(LockSettings()) as store:
            for name in names:
                await take(store, new_claim(LockId(operator.application, name)))

    asyncio.run(hold())
    listed = operator.runs("list", "--json")
    assert listed.status == cli.OK, listed.err
    assert sorted(each["name"] for each in listed.json["locks"]) == sorted(names)
    for name in names[:3]:
        (holder,) = operator.runs("show", name, "--json").json["holders"]
        assert operator.runs("release", name, "--token", str(holder["token"]), "--yes").status == cli.OK
    assert operator.runs("list", "--json").json["total"]["held"] == 9


def test_what_a_lost_node_had_is_missing_and_told(operator: Operator) -> None:
    """With one primary of a Cluster down the other locks are listed, and a script sees that some are not."""
    with ClusterSet() as cluster:
        operator.exports(REDIS_URL=cluster.url, REDIS_CLUSTER="true")
        crowds = [Crowd(LockId(operator.application, f"lock-{n}")) for n in range(30)]
        homes: dict[int, list[Crowd]] = {0: [], 1: [], 2: []}
        for crowd in crowds:
            slot = command(cluster.nodes[0], "CLUSTER", "KEYSLOT", lock_key("lock", crowd.lock))
            homes[min(slot * 3 // 16_384, 2)].append(crowd)
        for number, home in homes.items():
            put(cluster.nodes[number], home)
        assert len(operator.runs("list", "--json").json["locks"]) == 30

        cluster.nodes[2].kill()
        for node in cluster.nodes[:2]:
            command(node, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        wait_until(lambda: "fail" in command(cluster.nodes[0], "CLUSTER", "NODES"), "a node that is missed")
        listed = operator.runs("list", "--json")
    assert listed.status == cli.UNAVAILABLE
    assert f"no answer from {HOST}:{cluster.nodes[2].port}" in listed.err
    assert len(listed.json["locks"]) == 30 - len(homes[2])
    assert listed.json["complete"] is False


def test_a_lock_between_two_nodes_is_found_once(operator: Operator, cluster: ClusterSet) -> None:
    """While its slot is moved, a lock is listed, shown and released where it is."""
    operator.exports(REDIS_URL=cluster.url, REDIS_CLUSTER="true")
    claim = new_claim(LockId(operator.application, "moving"))

    async def hold() -> int:
        async with open_store(LockSettings()) as store:
            return (await take(store, claim)).token

    token = asyncio.run(hold())
    move = SlotMove(cluster, claim)
    move.begin()
    try:
        listed = operator.runs("list", "--json")
        assert listed.status == cli.OK, listed.err
        assert [each["held"] for each in listed.json["locks"]] == [1]
        assert [each["token"] for each in operator.runs("show", "moving", "--json").json["holders"]] == [
            token
        ]
        assert operator.runs("release", "moving", "--token", str(token), "--yes").status == cli.OK
    finally:
        move.finish()
    assert operator.runs("list", "--json").json["total"]["held"] == 0


def test_a_search_that_takes_long_says_so_and_ends(
    operator: Operator, valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a second progress goes to standard error, and what is too much is given up, saying so."""
    monkeypatch.setattr(listing, "_QUIET", 0.0)
    monkeypatch.setattr(listing, "MOST_LOCKS", 200)
    put(valkey, [Crowd(LockId(operator.application, f"lock-{n}")) for n in range(450)])
    table, found = operator.runs("list"), operator.runs("list", "--json")
    assert "looked at" in table.err
    assert "more than 200" in table.out
    assert found.json["complete"] is False
    assert 200 <= found.json["total"]["locks"] < 450
