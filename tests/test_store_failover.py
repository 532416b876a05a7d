"""The grace: after another primary took over, or a restart, nothing is granted for one lease."""

from datetime import timedelta
from pathlib import Path

import pytest
from servers import redis_binaries
from store_cases import LEASE, Bench, RedisBench, store_on
from virtual_time import Clock

from lock_interceptor.dev import RedisServer

pytest_plugins = ["store_fixtures"]

EDGE = 0.001
"""Seconds: times are kept in milliseconds."""


async def test_nothing_is_granted_for_one_lease(redis_bench: RedisBench) -> None:
    """A place that looks free may have been granted by the old primary, so it is not given for one lease."""
    bench, claim = redis_bench, redis_bench.claim("owner")
    await bench.hold(bench.claim("gone"))
    await bench.release(bench.claim("gone"))
    bench.forget_epoch()
    for left in (LEASE, LEASE - 10):
        assert (await bench.wait(claim)).settling.total_seconds() == left
        bench.clock.step(10)
    assert not await bench.try_once(bench.claim("once"))
    bench.clock.step(LEASE - 20 - EDGE)
    await bench.wait(claim)
    bench.clock.step(EDGE)
    await bench.hold(claim)
    assert (await bench.wait(bench.claim("other"))).settling is None


async def test_asking_once_begins_the_grace_too(redis_bench: RedisBench) -> None:
    """It counts from the first request of any kind for the lock, and does not begin again."""
    bench = redis_bench
    await bench.hold(bench.claim("owner", limit=2))
    bench.forget_epoch()
    assert not await bench.try_once(bench.claim("once", limit=2))
    bench.clock.step(LEASE)
    await bench.hold(bench.claim("other", limit=2))


async def test_the_longest_lease_counts(redis_bench: RedisBench) -> None:
    """The grace lasts as long as the longest lease that was granted or is asked for."""
    bench = redis_bench
    await bench.hold(bench.claim("long", limit=3), lease=100)
    await bench.hold(bench.claim("short", limit=3), lease=5)
    bench.forget_epoch()
    answer = await bench.wait(bench.claim("other", limit=3), lease=5)
    assert answer.settling.total_seconds() == 100
    bench.lock = type(bench.lock)("tests", f"{bench.lock.name}-2")
    await bench.hold(bench.claim("short", limit=3), lease=5)
    bench.forget_epoch()
    answer = await bench.wait(bench.claim("other", limit=3), lease=100)
    assert answer.settling.total_seconds() == 100


async def test_a_short_request_does_not_shorten_the_grace(redis_bench: RedisBench) -> None:
    """Near its deadline an attempt asks for less than a lease that was forgotten may last."""
    bench, usual = redis_bench, timedelta(seconds=LEASE)
    await bench.hold(bench.claim("short", usual_lease=usual), lease=2)
    await bench.release(bench.claim("short", usual_lease=usual))
    bench.forget_epoch()
    answer = await bench.wait(bench.claim("another", usual_lease=usual), lease=2)
    assert answer.settling.total_seconds() == LEASE


async def test_a_short_lease_does_not_shorten_the_grace(redis_bench: RedisBench) -> None:
    """That of a lock which was leased for longer before stays as long: the new primary may know no better."""
    bench = redis_bench
    for lease in (LEASE, 2):
        await bench.hold(bench.claim("owner"), lease=lease)
        await bench.release(bench.claim("owner"))
    bench.forget_epoch()
    assert (await bench.wait(bench.claim("another"), lease=2)).settling.total_seconds() == LEASE


async def test_known_holders_go_on(redis_bench: RedisBench) -> None:
    """Who is known to hold renews, asks again, and gives back during the grace."""
    bench, claim = redis_bench, redis_bench.claim("owner", limit=2)
    granted = await bench.hold(claim)
    bench.forget_epoch()
    await bench.wait(bench.claim("other", limit=2))
    bench.clock.step(LEASE - EDGE)
    assert await bench.renew(claim)
    assert await bench.hold(claim) == granted
    assert await bench.release(claim)


async def test_waiters_keep_their_places(redis_bench: RedisBench) -> None:
    """Who waited goes on waiting in the old order, newcomers behind, and tokens go on rising."""
    bench = redis_bench
    holder, first, second = bench.claim("holder"), bench.claim("first"), bench.claim("second")
    before = await bench.hold(holder)
    await bench.wait(first)
    bench.forget_epoch()
    await bench.wait(second, presence=2 * LEASE)
    await bench.wait(first, presence=2 * LEASE)
    assert await bench.line() == ["for-first", "for-second"]
    bench.clock.step(LEASE)
    await bench.wait(second)
    assert (await bench.hold(first)).token > before.token


async def test_the_grace_follows_a_step_back(redis_bench: RedisBench) -> None:
    """A clock that is an hour behind on the new primary does not make the grace an hour longer."""
    bench, claim = redis_bench, redis_bench.claim("owner")
    await bench.hold(bench.claim("gone"))
    bench.forget_epoch()
    await bench.wait(claim)
    bench.clock.step(-3600)
    assert (await bench.wait(claim)).settling.total_seconds() == LEASE


@pytest.mark.usefixtures("told_time")
@pytest.mark.parametrize("binary", redis_binaries().values(), ids=redis_binaries().keys())
async def test_a_restart_is_noticed(binary: Path) -> None:
    """A server that comes back from its file, which may lack the last second, grants nothing for a lease."""
    clock = Clock()
    with RedisServer("--appendonly", "yes", "--appendfsync", "always", binary=binary) as server:
        store = store_on(server, clock)
        bench = Bench(store, clock)
        holder, waiter = bench.claim("holder", limit=2), bench.claim("waiter", limit=2)
        before = await bench.hold(holder)
        server.kill()
        server.start()
        await store.close()
        assert (await bench.wait(waiter)).settling.total_seconds() == LEASE
        assert await bench.renew(holder)
        clock.step(LEASE)
        assert (await bench.hold(waiter)).token > before.token
        await store.close()
