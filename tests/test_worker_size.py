"""How many waiters a plain interceptor keeps in workers of which no hook tells the size."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from placed_bodies import ASYNC, call, until_begun
from stage import Stage, until
from temporalio.client import Client
from temporalio.worker import ActivityInboundInterceptor, Interceptor, Worker

from lock_interceptor import LockInterceptor


class Wrapping(Interceptor):
    """Somebody's own interceptor, with ours inside."""

    def __init__(self, inner: LockInterceptor) -> None:
        self._inner = inner

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See base class."""
        return self._inner.intercept_activity(next)


@contextlib.asynccontextmanager
async def interceptor_of(stage: Stage) -> AsyncIterator[LockInterceptor]:
    """An interceptor, closed at the end."""
    interceptor = LockInterceptor(stage.settings)
    yield interceptor
    await interceptor.close()


@contextlib.asynccontextmanager
async def running(client: Client, queue: str, how: str, **options: Any) -> AsyncIterator[None]:
    """A worker without workflows that runs in one of the ways in which people run it."""
    worker = Worker(client, task_queue=queue, activities=ASYNC, **options)
    if how == "context":
        async with worker:
            yield
        return
    run = asyncio.create_task(worker.run() if how == "task" else _in_main(worker))
    try:
        yield
    finally:
        await worker.shutdown()
        await run


async def _in_main(worker: Worker) -> None:
    """As most programs do."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        await asyncio.wait_for(asyncio.shield(group.create_task(worker.run())), None)


async def fill(stage: Stage, queue: str, count: int) -> list[Any]:
    """Start so many that wait for the lock, and wait until each has been told so once."""
    before = (await stage.state()).waiting
    handles = [await call(stage, queue, "locked", f"{queue}{number}") for number in range(count)]

    async def all_in_line() -> bool:
        return (await stage.state()).waiting == before + count

    await until(all_in_line, "all in line", 30)
    return handles


async def until_present(stage: Stage, most: int) -> None:
    """Wait until no more than that wait in a worker: one that has to leave its seat needs a moment."""

    async def so_few() -> bool:
        return sum(waiter.present for waiter in (await stage.state()).waiters) <= most

    await until(so_few, f"{most} in a worker", 4)  # none of them has waited as long as it may by then


@pytest.mark.parametrize("how", ["context", "task", "main"])
@pytest.mark.parametrize("given", ["worker", "client", "wrapped"])
async def test_half_of_the_permits_without_workflows(stage: Stage, given: str, how: str) -> None:
    """Waiters take no more than half of a worker's permits, however it has the interceptor and is run."""
    async with interceptor_of(stage) as own:
        ours: Any = Wrapping(own) if given == "wrapped" else own
        client = await Client.connect(
            stage.temporal.address, interceptors=[ours] if given == "client" else []
        )
        inner = [] if given == "client" else [ours]
        async with (
            running(client, stage.task_queue, how, interceptors=inner, max_concurrent_activities=4),
            stage.somebody_else() as guarding,
        ):
            handles = await fill(stage, stage.task_queue, 6)
            await until_present(stage, 2)
            for number in range(3):
                handles.append(await call(stage, stage.task_queue, "plain", f"plain{number}"))
                await until_begun(stage, f"plain{number}")
            await stage.store.release(guarding)
            await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 40)


async def test_workers_that_share_an_interceptor(stage: Stage) -> None:
    """Together they keep no more waiters than half of the permits of the smallest one."""
    small, large = stage.task_queue, f"large-{stage.task_queue}"
    async with interceptor_of(stage) as own:
        client = await Client.connect(stage.temporal.address, interceptors=[own])
        async with (
            running(client, large, "context", max_concurrent_activities=20),
            running(client, small, "context", max_concurrent_activities=2),
            stage.somebody_else() as guarding,
        ):
            handles = [*await fill(stage, large, 4), *await fill(stage, small, 4)]
            await until_present(stage, 1)
            handles.append(await call(stage, small, "plain", "plain"))
            await until_begun(stage, "plain")
            await stage.store.release(guarding)
            await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 40)


async def test_a_worker_that_cannot_be_found(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a worker of which nothing is known few permits are taken, and its activities run all the same."""

    def fail() -> None:
        raise RuntimeError("frames cannot be read here")

    monkeypatch.setattr("lock_interceptor.worker.worker_size._running_workers", fail)
    async with interceptor_of(stage) as own:
        client = await Client.connect(stage.temporal.address)
        async with (
            running(client, stage.task_queue, "context", interceptors=[own], max_concurrent_activities=4),
            stage.somebody_else() as guarding,
        ):
            handles = await fill(stage, stage.task_queue, 6)
            await until_present(stage, 2)
            handles.append(await call(stage, stage.task_queue, "plain", "plain"))
            await until_begun(stage, "plain")
            await stage.store.release(guarding)
            await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 40)


async def test_the_users_own_number_counts(stage: Stage) -> None:
    """``LOCK_MAX_WAITERS`` is what the user wants, whatever the worker's size."""
    chosen = stage.with_settings(max_waiters=3)
    async with interceptor_of(chosen) as own:
        client = await Client.connect(stage.temporal.address)
        async with (
            running(client, stage.task_queue, "context", interceptors=[own], max_concurrent_activities=4),
            stage.somebody_else() as guarding,
        ):
            handles = await fill(stage, stage.task_queue, 3)
            await stage.until_waiting(3)
            await stage.store.release(guarding)
            await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 40)
