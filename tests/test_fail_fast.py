"""``on_conflict="fail"``: who is somebody else, and when an activity has only itself to wait for."""

from datetime import timedelta

import pytest
from redis_tools import eventually
from stage import Stage
from store_cases import LEASE, Bench, RedisBench
from temporalio import activity
from temporalio.exceptions import ApplicationError

from lock_interceptor import LockBusy, LockInterceptor, LockNotAcquired, RedisLockStore, needs_lock
from lock_interceptor.conflict import refusal
from lock_interceptor.dev import RedisServer
from lock_interceptor.store import Claim, LockId, Waiting, waiter_id
from lock_interceptor.terms import new_owner
from lock_interceptor.testing import (
    FaultyLockStore,
    LockedActivityEnvironment,
    quick_settings,
)

pytest_plugins = ["store_fixtures"]


def attempt_of(bench: Bench, name: str, *, limit: int = 1) -> Claim:
    """One more attempt of the activity with this name."""
    waiter = waiter_id(name, lock=bench.lock)
    return bench.claim(new_owner(waiter), waiter, limit=limit)


async def once(bench: Bench, claim: Claim) -> Waiting:
    """Ask without standing in line, which has to be in vain."""
    answer = await bench.store.acquire(claim, lease=timedelta(seconds=LEASE))
    assert isinstance(answer, Waiting)
    return answer


async def told(bench: Bench, claim: Claim, *, until_deadline: float = 600) -> LockBusy | LockNotAcquired:
    """What the activity is told that does not wait."""
    return refusal(claim, await once(bench, claim), until_deadline)


async def test_its_own_attempts_are_known(bench: Bench) -> None:
    """Who asks once is told how many holders are attempts of its activity, and when the first one ends."""
    await bench.hold(attempt_of(bench, "mine", limit=3), lease=20)
    await bench.hold(attempt_of(bench, "mine", limit=3), lease=10)
    await bench.hold(attempt_of(bench, "other", limit=3), lease=5)
    answer = await once(bench, attempt_of(bench, "mine", limit=3))
    assert (answer.held, answer.own, answer.own_expiry) == (3, 2, timedelta(seconds=10))
    answer = await once(bench, attempt_of(bench, "nobody", limit=3))
    assert (answer.held, answer.own, answer.own_expiry) == (3, 0, None)


@pytest.mark.parametrize("held_by", ["mine", "other", "mine mine", "mine other", "other other"])
async def test_only_others_are_somebody_else(bench: Bench, held_by: str) -> None:
    """It fails for good if others hold all slots, and comes back if one of its own attempts has a slot."""
    holders = held_by.split()
    for name in holders:
        await bench.hold(attempt_of(bench, name, limit=len(holders)), lease=12)
    error = await told(bench, attempt_of(bench, "mine", limit=len(holders)))
    if "mine" in holders:
        assert isinstance(error, LockNotAcquired)
        assert error.retry_after == timedelta(seconds=12)
        assert "an earlier attempt of this activity still holds it; its lease ends in 12 s" in str(error)
    else:
        assert isinstance(error, LockBusy)
        assert f"is not free: {len(holders)} of {len(holders)} held" in str(error)


@pytest.mark.parametrize("held_by", ["mine", ""])
async def test_who_waits_is_somebody_else(bench: Bench, held_by: str) -> None:
    """Where the slot is that of one in line as soon as it is free, the lock is busy."""
    holder = attempt_of(bench, held_by or "other")
    await bench.hold(holder)
    await bench.wait(attempt_of(bench, "waiter"))
    if not held_by:
        await bench.release(holder)
    assert isinstance(await told(bench, attempt_of(bench, "mine")), LockBusy)


@pytest.mark.parametrize(
    ("lease", "until_deadline", "delay"),
    [(0.2, 600, 1), (45, 600, 45), (90, 600, 60), (45, 30, 28), (45, 2.5, 1)],
)
async def test_when_it_comes_back(bench: Bench, lease: float, until_deadline: float, delay: float) -> None:
    """At the end of the lease: not sooner than the server can, nor after a minute, nor past its deadline."""
    await bench.hold(attempt_of(bench, "mine"), lease=lease)
    error = await told(bench, attempt_of(bench, "mine"), until_deadline=until_deadline)
    assert isinstance(error, LockNotAcquired)
    assert error.retry_after == timedelta(seconds=delay)


@pytest.mark.parametrize("held_by", ["", "mine", "other"])
async def test_a_failover_is_nobody(redis_bench: RedisBench, held_by: str) -> None:
    """While nothing is granted after a failover, only somebody else who holds the lock makes it busy."""
    bench = redis_bench
    holder = attempt_of(bench, held_by or "other")
    await bench.hold(holder, lease=30)
    if not held_by:
        await bench.release(holder)
    bench.forget_epoch()
    claim = attempt_of(bench, "mine")
    await once(bench, claim)
    bench.clock.step(10)
    error = await told(bench, claim)
    if held_by == "other":
        assert isinstance(error, LockBusy)
    else:
        assert isinstance(error, LockNotAcquired)
        assert error.retry_after == timedelta(seconds=20)
        assert "nothing is granted for 20 s after a failover or restart" in str(error)
        assert ("an earlier attempt" in str(error)) is bool(held_by)


async def test_it_waits_for_its_own_dead_attempt(stage: Stage) -> None:
    """An activity whose first attempt took its slot with it runs again, and does not fail for good."""
    store, runs = FaultyLockStore(stage.store), list[int]()
    interceptor = LockInterceptor(
        stage.settings.model_copy(update={"lease": timedelta(seconds=5)}), store=store
    )

    @activity.defn
    @needs_lock(lock_name="lock", on_conflict="fail")
    async def refresh() -> str:
        runs.append(activity.info().attempt)
        if len(runs) == 1:
            raise RuntimeError("the worker is about to die")
        return "done"

    async with stage.worker(refresh, interceptors=[interceptor]):
        with store.unavailable("release"):
            handle = await stage.start("refresh")
            info = await stage.failed_attempt(handle, "LockNotAcquired")
            assert "an earlier attempt of this activity still holds it" in info.last_failure.message
        assert await handle.result() == "done"
    await interceptor.close()
    assert runs[0] == 1
    assert len(runs) == 2


async def test_it_waits_for_the_grace() -> None:
    """After a restart of the server nobody holds the lock: the attempt ends with an error to be retried."""

    @activity.defn
    @needs_lock(lock_name="lock", on_conflict="fail")
    async def refresh() -> str:
        return "done"

    with RedisServer("--appendonly", "yes", "--appendfsync", "always") as server:
        settings = quick_settings(redis_url=server.url, lease=timedelta(seconds=60))
        async with LockedActivityEnvironment(RedisLockStore(settings), settings) as environment:
            assert await environment.run(refresh) == "done"
            server.kill()
            server.start()
            errors = list[ApplicationError]()

            async def refused() -> bool:
                try:
                    await environment.run(refresh)
                except ApplicationError as error:
                    errors.append(error)
                return bool(errors) and errors[-1].type == "LockNotAcquired"

            await eventually(refused, "a refusal")
    assert not any(error.non_retryable for error in errors)
    assert "after a failover or restart" in str(errors[-1])
    assert errors[-1].next_retry_delay


async def test_attempts_of_locks_are_told_apart() -> None:
    """Owners begin with the waiter, which is different for each lock and activity; none is used twice."""
    waiters = {waiter_id(*who, lock=LockId("app", name)) for who in (("a",), ("b",)) for name in ("x", "y")}
    assert len({waiter[:16] for waiter in waiters}) == 4
    owners = [new_owner(waiter) for waiter in waiters for _ in range(100)]
    assert len(set(owners)) == 400
    assert {owner[:16] for owner in owners} == {waiter[:16] for waiter in waiters}
