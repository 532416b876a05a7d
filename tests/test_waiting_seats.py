"""How many may wait in one worker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from plugin_workers import connect, locked, start, worker_of
from stage import Stage, until
from temporalio import activity

from lock_interceptor.store import Claim


@activity.defn
async def quick() -> str:
    return "done"


async def test_waiters_are_bounded(stage: Stage) -> None:
    """No more than ``LOCK_MAX_WAITERS`` wait in a worker, with the plugin and without; the rest is parked."""
    few = stage.with_settings(max_waiters=3)
    client = await connect(few)
    async with worker_of(client, stage.task_queue, locked), short_holds(stage) as guarding:
        results = await start(stage, 6, "locked")
        await until_present(stage, 3, of=6)
        await stage.store.release(guarding)
        assert await results == ["done"] * 6

    async with few.worker(locked), short_holds(stage) as guarding:
        results = await start(stage, 6, "locked")
        await until_present(stage, 3, of=6)
        await stage.store.release(guarding)
        assert await results == ["done"] * 6


async def test_half_of_few_permits(stage: Stage) -> None:
    """A plain interceptor leaves half of a worker's permits to activities that do not wait."""
    async with stage.worker(locked, quick, max_concurrent_activities=4), short_holds(stage) as guarding:
        results = await start(stage, 6, "locked")
        await until_present(stage, 2, of=6)
        assert await asyncio.wait_for(stage.run("quick"), 10) == "done"
        await stage.store.release(guarding)
        assert await results == ["done"] * 6


@contextlib.asynccontextmanager
async def short_holds(stage: Stage) -> AsyncIterator[Claim]:
    """Somebody holds the lock, although it is usually given back soon: who is parked then comes back soon."""
    for _ in range(3):
        await stage.run("locked")
    async with stage.somebody_else() as claim:
        yield claim


async def until_present(stage: Stage, count: int, *, of: int) -> None:
    """Wait until all are in line and each has had its first attempt, with so many of them in the worker."""

    async def so_many() -> bool:
        waiters = (await stage.state()).waiters
        return len(waiters) == of and sum(waiter.present for waiter in waiters) == count

    await until(so_many, f"{count} of {of} in the worker")
