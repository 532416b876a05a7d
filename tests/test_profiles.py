"""All profiles on one Redis, on Sentinel and on Cluster: before, during and after a crash of the primary."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from redis_tools import LEASE, eventually, new_claim, open_store, until_answered
from servers import info
from structlog.testing import capture_logs
from topologies import KINDS, Topology, topology

from lock_interceptor import LockConfigurationError, LockStoreUnavailable
from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.store import Claim, Granted, Waiting

PROFILES = ["primary", "failover", "strict"]
DEFAULT = {"one": "primary", "sentinel": "failover", "cluster": "failover"}
WAITED_FOR = {"primary": [0, 0, 0], "failover": [1, 0, 0], "strict": [1, 1, 0]}
"""Whether a grant, a renewal and a release wait for replicas."""
SHORT = timedelta(seconds=1)


@pytest.fixture(scope="module", params=KINDS)
def redis(request: pytest.FixtureRequest) -> Iterator[Topology]:
    """Each kind of Redis in turn."""
    with topology(request.param) as each:
        yield each


@pytest.fixture(params=PROFILES)
def profile(request: pytest.FixtureRequest) -> str:
    """Each profile in turn."""
    return request.param


@pytest.fixture
async def store(redis: Topology, profile: str) -> AsyncIterator[RedisLockStore]:
    """A store with that profile, and all replicas in sync."""
    redis.settle()
    async with open_store(redis.settings_for(durability=profile)) as store:
        await store.check()
        yield store


def waits(server: RedisServer) -> int:
    """How often the server was asked to wait for its replicas."""
    stats = info(server, "commandstats").get("cmdstat_wait", "calls=0,")
    return int(stats.split("calls=")[1].split(",")[0])


async def granted(store: RedisLockStore, claim: Claim, lease: timedelta = LEASE) -> Granted:
    """Ask until it is granted."""
    async with asyncio.timeout(30):
        while True:
            answer = await until_answered(lambda: store.acquire(claim, lease=lease), 30)
            if isinstance(answer, Granted):
                return answer
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("profile", [None, *PROFILES], indirect=True)
async def test_what_is_waited_for(redis: Topology, profile: str | None, store: RedisLockStore) -> None:
    """A grant waits for replicas in failover and strict, a renewal in strict, a release never.

    By default that is failover where another primary may take over, and primary elsewhere.
    """
    claim = redis.claim()
    await granted(store, redis.claim())  # the server has the script now
    counts = [waits(redis.primary)]
    with capture_logs() as logs:
        for call in (
            lambda: store.acquire(claim, lease=LEASE),
            lambda: store.renew(claim, lease=LEASE),
            lambda: store.release(claim),
        ):
            assert await call()
            counts.append(waits(redis.primary))
    assert [after - before for before, after in itertools.pairwise(counts)] == WAITED_FOR[
        profile or DEFAULT[redis.kind]
    ]
    assert not logs


async def test_a_crash_of_the_primary(redis: Topology, profile: str, store: RedisLockStore) -> None:
    """Holders stay, nothing new is granted for one lease, once; and tokens rise.

    In strict all that waits until the crashed server is back, since it might be promoted again.
    """
    held, free = redis.claim(), redis.claim(limit=2)
    await granted(store, held)
    before = await granted(store, free, SHORT)
    await store.release(free)
    if profile == "primary":
        redis.settle()

    old = await asyncio.to_thread(redis.fail_over)
    first, second = new_claim(free.lock, limit=2), new_claim(free.lock, limit=2)
    answer = await until_answered(lambda: store.acquire(first, lease=SHORT), 30)
    assert isinstance(answer, Waiting)
    assert timedelta(0) < answer.settling <= SHORT
    if profile == "strict" and not old.running:
        with pytest.raises(LockStoreUnavailable, match="have confirmed the renewal"):
            await store.renew(held, lease=LEASE)
    await asyncio.to_thread(redis.bring_back, old)

    assert await until_answered(lambda: store.renew(held, lease=LEASE), 30)
    after = await granted(store, first, SHORT)
    assert after.token > before.token
    answer = await until_answered(lambda: store.acquire(second, lease=SHORT))
    assert isinstance(answer, Granted), "the grace comes once"
    assert isinstance(await until_answered(lambda: store.acquire(new_claim(held.lock), lease=LEASE)), Waiting)


async def test_a_replica_that_is_away_counts(redis: Topology) -> None:
    """A process that starts while a replica is away needs it all the same, where somebody may promote it.

    On one Redis without anybody who promotes, it is a mistake in the configuration, and said at the start.
    """
    redis.settle()
    away, there = redis.replicas[0], len(redis.replicas) - 1
    away.kill()
    await eventually(
        lambda: info(redis.primary, "replication")["connected_slaves"] == str(there), "the replica's end"
    )
    claim = redis.claim()
    async with open_store(redis.settings_for(durability="strict")) as store:
        if redis.kind != "cluster":  # there it tries one part, and that may be another one
            with pytest.raises(LockConfigurationError if redis.kind == "one" else LockStoreUnavailable):
                await store.check()
        for _ in range(2):
            with pytest.raises(LockStoreUnavailable, match=f"{there} of {there + 1} replicas .* the grant"):
                await store.acquire(claim, lease=LEASE)
        with pytest.raises(LockStoreUnavailable, match=f"{there} of {there + 1} replicas .* the renewal"):
            await store.renew(claim, lease=LEASE)
        redis.bring_back(away)
        assert await until_answered(lambda: store.renew(claim, lease=LEASE), 30)
        await granted(store, claim)
