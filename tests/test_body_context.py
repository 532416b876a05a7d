"""An async body runs as it does without its lock: in the same task and context, cancelled in the same way."""

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest
from stage import until
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from lock_interceptor import current_lease, needs_lock
from lock_interceptor.testing import FaultyLockStore, InMemoryLockStore, LockedActivityEnvironment

customer: ContextVar[str] = ContextVar("customer", default="nobody")


class Outer(ActivityInboundInterceptor):
    """An interceptor further out, such as one that writes an access log."""

    seen: str = ""

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Look at what the body has left in the context."""
        try:
            return await super().execute_activity(input)
        finally:
            Outer.seen = customer.get()


@pytest.fixture
async def store() -> FaultyLockStore:
    return FaultyLockStore(InMemoryLockStore())


@pytest.fixture
async def environment(store: FaultyLockStore) -> AsyncIterator[LockedActivityEnvironment]:
    """With an outer interceptor around the one for locks."""
    async with LockedActivityEnvironment(store) as environment:
        intercept = environment.interceptor.intercept_activity
        environment.interceptor.intercept_activity = lambda inner: Outer(intercept(inner))  # type: ignore[method-assign]
        yield environment


@pytest.mark.parametrize("locked", [False, True])
async def test_what_it_sets_is_seen_outside(environment: LockedActivityEnvironment, *, locked: bool) -> None:
    """A context variable that the body sets has that value for outer interceptors, locked or not."""

    @activity.defn
    async def body() -> None:
        customer.set("acme")

    await environment.run(needs_lock(body, lock_name="db") if locked else body)
    assert Outer.seen == "acme"


async def lose(store: FaultyLockStore) -> None:
    """Take the lock away from the body as soon as it has it."""

    async def taken() -> bool:
        try:
            await store.lose("db")
        except LookupError:
            return False
        return True

    await until(taken, "a holder")


async def test_a_body_that_goes_on_after_its_loss(
    environment: LockedActivityEnvironment, store: FaultyLockStore
) -> None:
    """One that is told, and cleans up with time limits and groups of tasks, is not cancelled once more."""
    steps: list[str] = []

    @activity.defn
    @needs_lock(lock_name="db")
    async def body() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            steps.append("told")
            async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0.01))
            steps.append("cleaned up")
            raise

    class Counting(ActivityInboundInterceptor):
        async def execute_activity(self, input: ExecuteActivityInput) -> Any:
            task = asyncio.current_task()
            assert task is not None
            try:
                return await super().execute_activity(input)
            finally:
                steps.append(f"{task.cancelling()} cancels left")

    intercept = environment.interceptor.intercept_activity
    environment.interceptor.intercept_activity = lambda inner: Counting(intercept(inner))  # type: ignore[method-assign]
    run = asyncio.create_task(environment.run(body))
    await lose(store)
    with pytest.raises(ApplicationError, match="LockLost"):
        await run
    assert steps == ["told", "cleaned up", "0 cancels left"]


@pytest.mark.parametrize("inner", ["timeout", "group", "shield"])
async def test_a_loss_inside_of(
    environment: LockedActivityEnvironment, store: FaultyLockStore, inner: str
) -> None:
    """A loss gets through whatever the body waits in, and is not taken for that."""

    @activity.defn
    @needs_lock(lock_name="db")
    async def body() -> None:
        if inner == "timeout":
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        elif inner == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.Event().wait())
        else:
            await asyncio.shield(asyncio.create_task(asyncio.Event().wait()))

    run = asyncio.create_task(environment.run(body))
    await lose(store)
    with pytest.raises(ApplicationError, match="LockLost"):
        await run


async def test_a_loss_and_a_cancel(environment: LockedActivityEnvironment, store: FaultyLockStore) -> None:
    """When both come, the activity was cancelled: what it lost does not matter any more."""
    told = asyncio.Event()

    @activity.defn
    @needs_lock(lock_name="db")
    async def body() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
            await asyncio.Event().wait()

    run = asyncio.create_task(environment.run(body))
    await lose(store)
    await told.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_its_own_error_after_a_loss(
    environment: LockedActivityEnvironment, store: FaultyLockStore
) -> None:
    """An error that the body raises when it is told stands behind `LockLost` as its cause."""

    @activity.defn
    @needs_lock(lock_name="db")
    async def body() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            assert current_lease().lost
            raise ValueError("half written")

    run = asyncio.create_task(environment.run(body))
    await lose(store)
    with pytest.raises(ApplicationError, match="LockLost") as caught:
        await run
    assert isinstance(caught.value.__cause__, ValueError)
