"""What type checkers see. Checked by mypy, never run.

Where a line must be an error it says which one, and mypy complains when it is not.
"""

from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, Literal, assert_type

from temporalio import activity, workflow
from temporalio.client import Client, Plugin
from temporalio.worker import Interceptor, Replayer, Worker
from temporalio.worker import Plugin as WorkerPlugin

from lock_interceptor import (
    Lease,
    LockBusy,
    LockConfigurationError,
    LockError,
    LockInterceptor,
    LockLost,
    LockNotAcquired,
    LockPlugin,
    LockSettings,
    LockSpec,
    LockStore,
    LockStoreUnavailable,
    RedisLockStore,
    __version__,
    current_lease,
    needs_lock,
)
from lock_interceptor.testing import InMemoryLockStore

# needs_lock keeps the signature of what it decorates


@needs_lock
def bare(order: str, amount: int = 1) -> bool:
    return bool(order) and amount > 0


@needs_lock()
async def called(order: str) -> float:
    return len(order)


@activity.defn
@needs_lock(
    lock_name="warehouse",
    max_locks=3,
    key=lambda order: f"{order}",
    lease=timedelta(minutes=1),
    on_conflict="fail",
)
@needs_lock(lock_name="all")
async def stacked(order: str, *, urgent: bool = False) -> None:
    assert urgent or order


@needs_lock(max_locks=2)
@activity.defn(name="outside")
def outside(order: bytes) -> str:
    return order.decode()


class Activities:
    @activity.defn
    @needs_lock
    async def method(self, order: str) -> int:
        return len(order)

    @staticmethod
    @needs_lock(key=str)
    def static(order: str) -> int:
        return len(order)


@needs_lock
class Callable_:  # noqa: N801 - "Callable" is taken
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, order: str) -> float:
        return self.scale * len(order)


async def signatures(activities: Activities) -> None:
    assert_type(bare("a", amount=2), bool)
    assert_type(await called("a"), float)
    waiting: Coroutine[Any, Any, None] = stacked("a", urgent=True)
    await waiting
    assert_type(outside(b"a"), str)
    assert_type(await activities.method("a"), int)
    assert_type(Activities.static("a"), int)
    assert_type(Callable_(1.5), Callable_)
    assert_type(Callable_(1.5)("a"), float)

    bare(1)  # type: ignore[arg-type]  # a str
    bare("a", unknown=1)  # type: ignore[call-arg]
    await called()  # type: ignore[call-arg]
    await activities.method(1)  # type: ignore[arg-type]
    Callable_("a")  # type: ignore[arg-type]


# what needs_lock does not take

needs_lock("warehouse")  # type: ignore[call-overload]  # it is lock_name="warehouse"
needs_lock(3)  # type: ignore[call-overload]
needs_lock(name="warehouse")  # type: ignore[call-overload]
needs_lock(lock_name=3)  # type: ignore[call-overload]
needs_lock(max_locks="3")  # type: ignore[call-overload]
needs_lock(key="region")  # type: ignore[call-overload]
needs_lock(key=len)  # type: ignore[arg-type]
needs_lock(lease=30)  # type: ignore[call-overload]
needs_lock(on_conflict="raise")  # type: ignore[call-overload]
needs_lock(bare, max_locks=3)  # type: ignore[call-overload]


# workflows call a tagged activity as any other


@workflow.defn
class Ship:
    @workflow.run
    async def run(self, order: str) -> float:
        timeout = timedelta(minutes=5)
        result = await workflow.execute_activity(called, order, schedule_to_close_timeout=timeout)
        assert_type(result, float)
        await workflow.execute_activity(called, 3, schedule_to_close_timeout=timeout)  # type: ignore[misc]
        method = await workflow.execute_activity_method(
            Activities.method, order, schedule_to_close_timeout=timeout
        )
        assert_type(method, int)
        of_class = await workflow.execute_activity_class(Callable_, order, schedule_to_close_timeout=timeout)
        assert_type(of_class, float)
        return result


# the rest of the public names


def lease() -> None:
    held = current_lease()
    assert_type(held, Lease)
    assert_type(current_lease("warehouse"), Lease)
    assert_type(held.name, str)
    assert_type(held.key, str | None)
    assert_type((held.token, held.slot), tuple[int, int])
    assert_type((held.expires_at, held.deadline), tuple[datetime, datetime])
    assert_type(held.lost, bool)
    held.lost = True  # type: ignore[misc]  # read only
    held.expires_at = datetime.max  # type: ignore[misc]  # noqa: DTZ901
    held.raise_if_lost()


def spec() -> None:
    one = LockSpec("warehouse", max_locks=3)
    assert_type(one.lock_name, str | None)
    assert_type(one.max_locks, int)
    assert_type(one.key, Callable[..., str] | None)
    assert_type(one.on_conflict, Literal["wait", "fail"])
    one.max_locks = 4  # type: ignore[misc]  # frozen


def errors() -> None:
    for error in (LockBusy, LockConfigurationError, LockLost, LockNotAcquired, LockStoreUnavailable):
        kind: type[LockError] = error
        assert issubclass(kind, LockError)
    assert_type(LockNotAcquired("").retry_after, timedelta | None)
    assert_type(LockStoreUnavailable("").retry_after, timedelta | None)
    assert_type(__version__, str)


def stores(settings: LockSettings) -> None:
    store: LockStore = RedisLockStore(settings)
    store = InMemoryLockStore()
    interceptor: Interceptor = LockInterceptor(settings, store=store)
    assert_type(LockInterceptor().settings, LockSettings)
    assert_type(interceptor.intercept_activity.__name__, str)
    LockInterceptor(store=object())  # type: ignore[arg-type]
    settings.disabled = True  # type: ignore[misc]  # frozen


async def workers() -> None:
    plugin = LockPlugin(LockSettings(disabled=True, lease=timedelta(seconds=10)))
    of_client: Plugin = plugin
    of_worker: WorkerPlugin = plugin
    client = await Client.connect("localhost:7233", plugins=[of_client])
    Worker(client, task_queue="orders", activities=[stacked], interceptors=[LockInterceptor()])
    Worker(client, task_queue="orders", activities=[stacked], plugins=[of_worker])
    Replayer(workflows=[Ship], plugins=[plugin], interceptors=[LockInterceptor()])
