"""`LockedActivityEnvironment`: what a worker does to a locked activity, without a server."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from stage import until
from temporalio import activity
from temporalio.exceptions import ApplicationError

from lock_interceptor import LockConfigurationError, LockLost, LockSettings, current_lease, needs_lock
from lock_interceptor.store import LockId
from lock_interceptor.testing import (
    FaultyLockStore,
    InMemoryLockStore,
    LockedActivityEnvironment,
    OverlapRecorder,
    quick_settings,
)


@pytest.fixture
def store() -> FaultyLockStore:
    """Keeps the locks."""
    return FaultyLockStore()


@pytest.fixture
async def environment(store: FaultyLockStore) -> AsyncIterator[LockedActivityEnvironment]:
    """The environment under test."""
    async with LockedActivityEnvironment(store) as environment:
        yield environment


@activity.defn(name="pick-order")
@needs_lock(max_locks=2)
async def named(order: int) -> tuple[int, str, str]:
    """Tell the lock that was taken, and the activity."""
    return order, current_lease().name, activity.info().activity_type


async def test_the_lock_is_that_of_the_activity_type(environment: LockedActivityEnvironment) -> None:
    """Without a name of its own the lock has the type under which a worker registers the activity."""
    assert await environment.run(named, 1) == (1, "pick-order", "pick-order")


async def test_untagged_activities_run_too(environment: LockedActivityEnvironment) -> None:
    """An activity without a lock runs as in Temporal's own environment."""

    async def plain(order: int) -> int:
        return order + activity.info().attempt

    assert await environment.run(plain, 1) == 2


async def test_never_more_than_the_limit(environment: LockedActivityEnvironment) -> None:
    """Activities at once are as many as the lock allows, each with a seat of its own, in threads as well."""
    overlap = OverlapRecorder()

    @needs_lock(lock_name="warehouse", max_locks=3)
    def pick(order: int) -> int:
        with overlap.running():
            time.sleep(0.02)
            return current_lease().slot if order >= 0 else -1

    slots = await asyncio.gather(*(environment.run(pick, order) for order in range(9)))

    assert set(slots) == {0, 1, 2}
    overlap.assert_never_more_than(3)
    assert overlap.most() == 3


async def test_methods_and_callable_objects(environment: LockedActivityEnvironment) -> None:
    """Activities of any form run, with the key made from their arguments without self."""

    class Picking:
        @activity.defn
        @needs_lock(lock_name="warehouse", key=lambda region: region)
        async def pick(self, region: str) -> str:
            return region + current_lease().label

    @activity.defn(name="Packing")
    @needs_lock
    class Packing:
        async def __call__(self, region: str) -> str:
            return region + current_lease().label

    assert await environment.run(Picking().pick, "north") == "northwarehouse[north]"
    assert await environment.run(Packing(), "north") == "northPacking"


async def test_a_busy_lock_is_waited_for(
    environment: LockedActivityEnvironment, store: FaultyLockStore
) -> None:
    """The wait ends as soon as somebody else gives the lock back, and heartbeats go out meanwhile."""
    beats: list[tuple[object, ...]] = []
    environment.on_heartbeat = lambda *details: beats.append(details)
    environment.info = replace(
        environment.info, heartbeat_details=["page 7"], heartbeat_timeout=timedelta(seconds=0.5)
    )
    async with store.busy("pick-order"):
        waiting = asyncio.create_task(environment.run(named, 1))
        await until(lambda: beats, "a heartbeat")
        assert not waiting.done()
    assert await waiting == (1, "pick-order", "pick-order")
    assert set(beats) == {("page 7",)}


async def test_each_run_has_its_own_place_in_line(
    environment: LockedActivityEnvironment, store: FaultyLockStore
) -> None:
    """Several that wait are several activities, as they would be in a worker."""

    async def three_wait() -> bool:
        return (await store.inspect(LockId("test", "pick-order"))).waiting == 3

    async with store.busy("pick-order"):
        waiting = [asyncio.create_task(environment.run(named, order)) for order in range(3)]
        await until(three_wait, "three in line")
    assert [order for order, *_ in await asyncio.gather(*waiting)] == [0, 1, 2]


async def test_waiting_for_too_long_ends_as_in_a_worker(
    environment: LockedActivityEnvironment, store: FaultyLockStore
) -> None:
    """After a quarter of start-to-close the attempt yields with the error that Temporal would retry."""
    environment.info = replace(environment.info, start_to_close_timeout=timedelta(seconds=0.4))
    async with store.busy("pick-order"):
        with pytest.raises(ApplicationError, match=r"pick-order.*2 of 2") as failure:
            await environment.run(named, 1)
    assert failure.value.type == "LockNotAcquired"
    assert not failure.value.non_retryable
    assert failure.value.next_retry_delay


async def test_fail_fast_is_told_at_once(
    environment: LockedActivityEnvironment, store: FaultyLockStore
) -> None:
    """With on_conflict="fail" the attempt ends with what the workflow is told."""

    @needs_lock(lock_name="warehouse", on_conflict="fail")
    async def rebuild() -> None:
        pytest.fail("it ran")

    async with store.busy("warehouse"):
        with pytest.raises(ApplicationError) as failure:
            await environment.run(rebuild)
    assert failure.value.type == "LockBusy"
    assert failure.value.non_retryable


async def test_a_loss_cancels_a_coroutine(
    environment: LockedActivityEnvironment, store: FaultyLockStore
) -> None:
    """The body of an async activity is cancelled, may clean up, and the attempt ends as LockLost."""
    runs, cleaned = asyncio.Event(), asyncio.Event()

    @needs_lock(lock_name="warehouse")
    async def endless() -> None:
        runs.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    attempt = asyncio.create_task(environment.run(endless))
    await runs.wait()
    await store.lose("warehouse")
    with pytest.raises(ApplicationError) as failure:
        await attempt
    assert failure.value.type == "LockLost"
    assert cleaned.is_set()


async def test_a_loss_is_raised_at_a_threads_heartbeat(
    environment: LockedActivityEnvironment, store: FaultyLockStore
) -> None:
    """The body of a threaded activity gets LockLost at its next heartbeat."""
    runs = threading.Event()
    raised: list[BaseException] = []

    @needs_lock(lock_name="warehouse")
    def endless() -> None:
        runs.set()
        try:
            while True:
                activity.heartbeat()
                time.sleep(0.01)
        except LockLost as error:
            raised.append(error)
            raise

    attempt = asyncio.create_task(environment.run(endless))
    await until(runs.is_set, "the body")
    await store.lose("warehouse")
    with pytest.raises(ApplicationError) as failure:
        await attempt
    assert failure.value.type == "LockLost"
    assert len(raised) == 1


async def test_errors_of_the_body_come_through(environment: LockedActivityEnvironment) -> None:
    """What the body raises comes out as it is, and the lock is free again."""

    @needs_lock(lock_name="warehouse", on_conflict="fail")
    async def failing() -> None:
        raise ZeroDivisionError("on purpose")

    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            await environment.run(failing)


async def test_what_no_worker_would_run_is_refused(environment: LockedActivityEnvironment) -> None:
    """A call without schedule-to-close timeout fails here as it does in a worker."""
    environment.info = replace(environment.info, schedule_to_close_timeout=None)
    with pytest.raises(ApplicationError, match="schedule_to_close_timeout") as failure:
        await environment.run(named, 1)
    assert failure.value.type == LockConfigurationError.__name__


async def test_arguments_go_by_position(environment: LockedActivityEnvironment) -> None:
    """Temporal has no arguments by keyword, so a test must not either."""
    with pytest.raises(TypeError, match="by position, not by keyword: order"):
        await environment.run(named, order=1)


async def test_environments_on_one_store_share_its_locks() -> None:
    """Two environments on one store share its locks, as two workers do."""
    store, overlap = InMemoryLockStore(), OverlapRecorder()

    @needs_lock(lock_name="warehouse")
    async def pick() -> None:
        with overlap.running():
            await asyncio.sleep(0.01)

    async with LockedActivityEnvironment(store) as one, LockedActivityEnvironment(store) as other:
        await asyncio.gather(*(environment.run(pick) for environment in (one, other) * 4))
    overlap.assert_never_more_than(1)
    assert len(overlap.intervals()) == 8


def test_quick_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests are locked and quick whatever the environment says, and each field can be given."""
    monkeypatch.setenv("IS_LOCKING_DISABLED", "true")
    monkeypatch.setenv("LOCK_LEASE_SECONDS", "600")
    settings = quick_settings(application_name="mine")
    assert isinstance(settings, LockSettings)
    assert (settings.disabled, settings.lease) == (False, timedelta(seconds=1))
    assert settings.application_name == "mine"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("threaded", [False, True])
async def test_a_body_that_exits(
    environment: LockedActivityEnvironment, store: FaultyLockStore, *, threaded: bool, error: BaseException
) -> None:
    """Its error comes to who runs it, as it comes to a worker, and ends no event loop; the lock is free."""

    async def leave() -> None:
        raise error

    def leave_thread() -> None:
        raise error

    body = needs_lock(leave_thread if threaded else leave, lock_name="db")
    with pytest.raises(type(error)):
        await environment.run(body)
    assert not (await store.inspect(LockId("test", "db"))).holders
