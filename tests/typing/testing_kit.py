"""What type checkers see of the testing kit. Checked by mypy, never run."""

from typing import assert_type

from temporalio import activity
from temporalio.worker import Interceptor

from lock_interceptor import Lease, LockInterceptor, LockSettings, LockStore, needs_lock
from lock_interceptor.testing import (
    FaultyLockStore,
    InMemoryLockStore,
    Interval,
    LockedActivityEnvironment,
    OverlapRecorder,
    assert_never_more_than,
    holding,
    quick_settings,
)


@activity.defn
@needs_lock
async def called(order: str) -> float:
    return len(order)


@needs_lock
def threaded(order: str, amount: int = 1) -> bool:
    return bool(order) and amount > 0


class Activities:
    @needs_lock
    async def method(self, order: str) -> int:
        return len(order)


async def environments() -> None:
    store: LockStore = FaultyLockStore()
    store = FaultyLockStore(InMemoryLockStore())
    async with LockedActivityEnvironment(store, quick_settings(max_waiters=3)) as environment:
        assert_type(environment, LockedActivityEnvironment)
        assert_type(await environment.run(called, "a"), float)
        assert_type(await environment.run(threaded, "a"), bool)
        assert_type(await environment.run(Activities().method, "a"), int)
        await environment.run(called, 1)  # type: ignore[call-overload]  # a str
        await environment.run(called)  # type: ignore[call-overload]
        interceptor: Interceptor = environment.interceptor
        assert isinstance(interceptor, LockInterceptor)
    assert_type(quick_settings(), LockSettings)
    LockedActivityEnvironment()  # type: ignore[call-arg]  # a store


async def faults(store: FaultyLockStore) -> None:
    async with store.busy("warehouse", slots=1):
        await store.lose("warehouse[north]")
    with store.unavailable(), store.unavailable("renew", "release", after=True):
        pass
    store.unavailable("renewal")  # type: ignore[arg-type]


def leases() -> None:
    with holding("warehouse", key="north", token=7, slot=1) as lease:
        assert_type(lease, Lease)
    holding()  # type: ignore[call-arg]


def overlaps() -> None:
    overlap = OverlapRecorder()
    with overlap.running("north"):
        pass
    overlap.assert_never_more_than(3)
    assert_type(overlap.intervals("north"), list[Interval])
    assert_type(overlap.most(), int)
    assert_never_more_than(3, overlap.intervals())
