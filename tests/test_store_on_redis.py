"""What the Redis store leaves in the server, and what it does with fewer rights than it would like."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from store_cases import KEEP, LEASE, PRESENCE, RedisBench, store_on
from structlog.testing import capture_logs

from lock_interceptor.store import Party, Waiting

pytest_plugins = ["store_fixtures"]

IDLE_MS = 60_000
RIGHTS = ("+@all", "~lock:*", "&lock:*")


def _ttl(bench: RedisBench) -> int:
    return int(bench.redis("PTTL", bench.key))


async def test_nothing_is_ever_without_an_end(redis_bench: RedisBench) -> None:
    """The key has an end after each operation that writes, later than anything in it."""
    bench, holder, waiter = redis_bench, redis_bench.claim("holder"), redis_bench.claim("waiter")
    await bench.hold(holder, lease=100)
    assert _ttl(bench) > 900_000
    await bench.wait(waiter, keep=2_000)
    assert _ttl(bench) > 1_900_000
    assert not await bench.try_once(bench.claim("once"))
    await bench.renew(holder, lease=300)
    assert _ttl(bench) > 2_900_000
    await bench.park(waiter, keep=4_000)
    assert _ttl(bench) > 3_900_000
    await bench.release(holder)
    assert _ttl(bench) > 3_800_000
    await bench.release(waiter)
    assert 0 < _ttl(bench) <= 200_000


@pytest.mark.parametrize("how", ["release", "park"])
async def test_an_idle_lock_goes_away(redis_bench: RedisBench, how: str) -> None:
    """When nobody holds or waits only bookkeeping is left, and it lasts for a minute or twice the lease."""
    bench = redis_bench
    for lease, lasts in ((LEASE, IDLE_MS), (100, 200_000)):
        holder = bench.claim(f"holder{lease}")
        await bench.hold(holder, lease=lease)
        await (bench.release(holder) if how == "release" else bench.park(holder))
        assert lasts - 5_000 < _ttl(bench) <= lasts
    assert {member[0] for member in bench.members()} == {"#", "@"}
    assert bench.redis("KEYS", f"{bench.key}*") == [bench.key]


async def test_a_lock_that_is_held_stays(redis_bench: RedisBench) -> None:
    """One holder that goes does not shorten the life of the key while another is there."""
    bench, stays, goes = redis_bench, redis_bench.claim("stays", limit=2), redis_bench.claim("goes", limit=2)
    await bench.hold(stays, lease=100)
    await bench.hold(goes, lease=100)
    await bench.release(goes)
    assert _ttl(bench) > 900_000


async def test_an_idle_key_is_deleted_by_the_server(redis_bench: RedisBench) -> None:
    """When its time is over the key is gone, and the lock begins anew with higher tokens."""
    bench, claim = redis_bench, redis_bench.claim("owner")
    before = await bench.hold(claim)
    await bench.release(claim)
    assert bench.redis("PEXPIRE", bench.key, 0)
    assert bench.redis("EXISTS", bench.key) == 0
    bench.clock.step(0.001)
    assert (await bench.hold(claim)).token > before.token


async def test_unknown_locks_are_not_created(redis_bench: RedisBench) -> None:
    """Renewing, releasing, parking and looking create no key."""
    bench, claim = redis_bench, redis_bench.claim("owner")
    assert not await bench.renew(claim)
    assert not await bench.release(claim)
    await bench.park(claim, ticket=300_000_000_001)
    await bench.look()
    assert bench.redis("EXISTS", bench.key) == 0


async def test_time_that_is_over_leaves_nothing_behind(redis_bench: RedisBench) -> None:
    """Dead holders and waiters are cleared away by whoever comes next, with all that was known of them."""
    bench, party = redis_bench, Party(workflow="order-7", activity="pick")
    await bench.hold(bench.claim("dead", limit=2, party=party))
    await bench.wait(bench.claim("lost", party=party))
    await bench.wait(bench.claim("parked", party=party))
    await bench.park(bench.claim("parked", party=party))
    bench.clock.step(KEEP + PRESENCE + LEASE)
    await bench.release(bench.claim("anybody"))
    assert {member[0] for member in bench.members()} == {"#", "@"}


async def test_a_forgotten_line_does_not_lock_itself(redis_bench: RedisBench) -> None:
    """Whose place was lost with the line comes after him who got its number since, and nobody is blocked."""
    bench, claim, other = redis_bench, redis_bench.claim("owner"), redis_bench.claim("other")
    await bench.hold(bench.claim("holder"))
    await bench.wait(claim)
    await bench.release(bench.claim("holder"))
    ticket = (await bench.hold(claim)).ticket
    bench.redis("DEL", bench.key)
    await bench.hold(bench.claim("holder"))
    await bench.wait(other)
    await bench.park(claim, ticket=ticket)
    await bench.wait(claim)
    await bench.release(bench.claim("holder"))
    assert isinstance(await bench.ask(claim), Waiting)
    await bench.hold(other)
    await bench.release(other)
    await bench.hold(claim)


async def test_long_parties_are_cut(redis_bench: RedisBench) -> None:
    """A party of many kilobytes takes little room, and what is left of it is readable."""
    bench = redis_bench
    party = Party(workflow="ü" * 10_000, activity='a"\\' * 2_000, worker="w", attempt=3)
    await bench.hold(bench.claim("owner", party=party))
    assert max(len(member.encode()) for member in bench.members()) < 700
    shown = (await bench.look()).holders[0].party
    assert party.workflow.startswith(shown.workflow)
    assert (shown.worker, shown.attempt) == ("w", 3)
    assert shown.workflow


@pytest.fixture
def user(redis_bench: RedisBench) -> Iterator[Any]:
    """Make a user of the server with these rights; what is returned are the store's settings for it."""

    def make(*rights: str) -> dict[str, Any]:
        redis_bench.redis("ACL", "SETUSER", "worker", "reset", "on", ">secret", *RIGHTS, *rights)
        return {"redis_username": "worker", "redis_password": "secret"}

    yield make
    redis_bench.redis("ACL", "DELUSER", "worker")


@asynccontextmanager
async def _as_user(bench: RedisBench, login: dict[str, Any]) -> AsyncIterator[RedisBench]:
    store = store_on(bench.server, bench.clock, **login)
    try:
        yield RedisBench(store, bench.clock, bench.server)
    finally:
        await store.close()


async def test_without_the_right_to_info_it_works_and_says_so_once(
    redis_bench: RedisBench, user: Any
) -> None:
    """The lock works, and one warning tells that a failover will go unnoticed."""
    async with _as_user(redis_bench, user("-info")) as bench:
        holder, waiter = bench.claim("holder"), bench.claim("waiter")
        with capture_logs() as logs:
            await bench.hold(holder)
            await bench.wait(waiter)
            await bench.release(holder)
            await bench.hold(waiter)
        assert [log["event"] for log in logs] == ["lock.info_forbidden"]
        assert logs[0]["log_level"] == "warning"
        assert not [member for member in bench.members() if member.startswith("@")]


async def test_without_the_right_to_publish_nothing_leaks(redis_bench: RedisBench, user: Any) -> None:
    """A release that may wake nobody is complete all the same, and the waiter gets the lock by asking."""
    async with _as_user(redis_bench, user("-publish")) as bench:
        holder, waiter = bench.claim("holder"), bench.claim("waiter")
        await bench.hold(holder)
        await bench.wait(waiter)
        assert await bench.release(holder)
        await bench.hold(waiter)
        await bench.wait(holder)
        await bench.park(waiter)
        assert await bench.owners() == []
        await bench.hold(holder)
