"""What every store promises when its clock steps, as clocks of servers do."""

import asyncio
import time
from datetime import timedelta

import pytest
from store_cases import KEEP, LEASE, PRESENCE, Bench
from virtual_time import Clock

from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.settings import LockSettings
from lock_interceptor.store import Waiting
from lock_interceptor.testing import InMemoryLockStore

pytest_plugins = ["store_fixtures"]

HOUR = 3600.0
EDGE = 0.001
"""Seconds: times are kept in milliseconds."""


async def test_a_step_back_keeps_no_dead_holder(bench: Bench) -> None:
    """After a step back by an hour a dead holder keeps its place for what was left of its lease, no more."""
    other = bench.claim("other")
    await bench.hold(bench.claim("dead"))
    bench.clock.step(10)
    await bench.wait(other)
    bench.clock.step(-HOUR)
    assert (await bench.wait(other)).next_expiry.total_seconds() == LEASE - 10
    bench.clock.step(LEASE - 10 - EDGE)
    await bench.wait(other)
    bench.clock.step(EDGE)
    await bench.hold(other)


async def test_a_step_back_ends_no_lease(bench: Bench) -> None:
    """A live holder renews after the step as before, and nobody else is let in."""
    claim = bench.claim("owner")
    await bench.hold(claim)
    bench.clock.step(-HOUR)
    assert not await bench.try_once(bench.claim("other"))
    assert await bench.renew(claim)
    assert (await bench.look()).holders[0].lease_left.total_seconds() == LEASE


@pytest.mark.parametrize("queues", [True, False])
async def test_a_step_back_is_followed_once(bench: Bench, queues: bool) -> None:
    """However many ask after the step, and whether they queue or not, what is left of a lease stays."""
    await bench.hold(bench.claim("owner"))
    bench.clock.step(-HOUR)
    for n in range(3):
        other = bench.claim(f"other{n}")
        if queues:
            await bench.wait(other)
        else:
            assert not await bench.try_once(other)
    assert (await bench.look()).holders[0].lease_left.total_seconds() == LEASE


async def test_a_step_back_keeps_the_line(bench: Bench) -> None:
    """Presence and places last for what was left of them, and the order stays."""
    first, second = bench.claim("first"), bench.claim("second")
    await bench.hold(bench.claim("holder"), lease=10 * KEEP)
    await bench.wait(first)
    await bench.wait(second)
    bench.clock.step(-HOUR)
    assert (await bench.wait(second)).place == 2
    bench.clock.step(PRESENCE)
    assert (await bench.wait(second)).place == 1
    bench.clock.step(KEEP - PRESENCE - EDGE)
    assert (await bench.wait(second)).ahead == 1
    bench.clock.step(EDGE)
    assert (await bench.wait(second)).ahead == 0


async def test_tokens_rise_when_the_clock_steps_back(bench: Bench) -> None:
    """No grant after the step has a token as low as one before."""
    tokens = []
    for n in range(6):
        claim = bench.claim(f"owner{n}")
        tokens.append((await bench.hold(claim)).token)
        await bench.release(claim)
        bench.clock.step(-HOUR if n % 2 else -0.3)
    assert tokens == sorted(set(tokens))


async def test_a_small_step_back_is_waited_for(bench: Bench) -> None:
    """A step back by less than a second shortens no lease, and lengthens it by no more than itself."""
    claim = bench.claim("owner")
    await bench.hold(claim)
    bench.clock.step(-0.9)
    await bench.wait(bench.claim("other"))
    bench.clock.step(LEASE - EDGE)
    await bench.wait(bench.claim("other"))
    bench.clock.step(0.9 + EDGE)
    await bench.hold(bench.claim("other"))


async def test_looking_follows_a_step_back_too(bench: Bench) -> None:
    """Inspecting before anything else has noticed the step tells what was left, and changes nothing."""
    await bench.hold(bench.claim("owner"))
    bench.clock.step(5)
    await bench.wait(bench.claim("waiter"))
    bench.clock.step(-HOUR)
    for _ in range(2):
        state = await bench.look()
        assert [holder.lease_left.total_seconds() for holder in state.holders] == [LEASE - 5]
        assert [waiter.present for waiter in state.waiters] == [True]


async def test_a_step_forward_ends_leases(bench: Bench) -> None:
    """A step forward cannot be told from time that passed: the lease is over, and the owner learns of it."""
    claim = bench.claim("owner")
    first = await bench.hold(claim)
    bench.clock.step(HOUR)
    second = await bench.hold(bench.claim("other"))
    assert second.token > first.token
    assert not await bench.renew(claim)


async def test_a_step_forward_and_back_does_not_count_twice(bench: Bench) -> None:
    """A lease granted while the clock was ahead lasts as long as any other when it is right again."""
    bench.clock.step(HOUR)
    await bench.hold(bench.claim("owner"))
    bench.clock.step(-HOUR)
    other = bench.claim("other")
    await bench.wait(other)
    bench.clock.step(LEASE)
    await bench.hold(other)


@pytest.mark.parametrize("where", ["memory", "redis7", "valkey"])
async def test_leases_end_by_the_clock_of_the_store(where: str, request: pytest.FixtureRequest) -> None:
    """With nobody to tell the time a lease ends as soon as it is over, and not before."""
    store: InMemoryLockStore | RedisLockStore = InMemoryLockStore()
    if where != "memory":
        store = RedisLockStore(LockSettings(redis_url=request.getfixturevalue(where).url))
    bench, lease = Bench(store, Clock()), 0.2
    before = time.monotonic()
    await bench.hold(bench.claim("owner"), lease=lease)
    async with asyncio.timeout(10):
        while isinstance(answer := await bench.ask(bench.claim("other")), Waiting):
            assert answer.next_expiry <= timedelta(seconds=lease)
            await asyncio.sleep(answer.next_expiry.total_seconds())
    assert time.monotonic() - before >= lease - 2 * EDGE  # times are cut to milliseconds
    await store.close()
