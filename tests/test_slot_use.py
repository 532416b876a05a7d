"""Many more activities than slots: the slots are in use, and other activities do not notice."""

import asyncio
import time
from statistics import median
from uuid import uuid4

import pytest
from activities_under_test import Call, CallActivity
from figures import measured
from load import Intervals, notes, worker_process
from load_worker import LIMIT
from stage import Stage, until
from temporalio import activity
from temporalio.client import Client

from lock_interceptor import LockInterceptor, LockPlugin, LockSettings, needs_lock

SECONDS = 0.2
WAITERS = 200


@activity.defn
@needs_lock(lock_name="lock")
async def locked(scene: str, name: str) -> None:
    """What everybody waits for."""


@activity.defn
async def unrelated() -> float:
    """Seconds from when the server scheduled it to its first line; both clocks are this machine's."""
    return time.time() - activity.info().current_attempt_scheduled_time.timestamp()


async def start_many(stage: Stage, activity: str, count: int, *args: object) -> list:
    """Start workflows that call the activity, in parallel."""
    at_once = asyncio.Semaphore(20)

    async def one(number: int):
        async with at_once:
            call = Call(activity, [str(stage.scene), f"{number}", *args], schedule_to_close=110)
            return await stage.client.start_workflow(
                CallActivity.run, call, id=f"load-{uuid4()}", task_queue=stage.task_queue
            )

    return await asyncio.gather(*(one(number) for number in range(count)))


@pytest.mark.parametrize(("way", "workflows"), [("interceptor", 300), ("plugin", 150)])
async def test_slots_are_in_use(stage: Stage, way: str, workflows: int) -> None:
    """While more wait than there are slots, hardly any of the slots' time is lost."""
    async with (
        stage.worker(),
        worker_process(stage, way),
        worker_process(stage, way),
    ):
        handles = await start_many(stage, "work", workflows, SECONDS)
        scheduled = time.monotonic()
        await until(lambda: len(notes(stage.scene, "done")) == workflows, "all done", 80)
        await asyncio.gather(*(handle.result() for handle in handles))

    bodies = Intervals.of(stage.scene)
    begins, ends = (sorted(times) for times in zip(*bodies.times, strict=True))
    # from when all are scheduled and a tenth is done, until the last tenth begins
    tenth = workflows // 10
    start, end = max(ends[tenth - 1], scheduled), begins[-tenth]
    used = bodies.slot_use(LIMIT, start, end)
    gaps = sorted(bodies.gaps(LIMIT, start, end))
    measured(
        f"{way}: slots in use {used:.1%} of {end - start:.1f} s; from the end of a body to the next: "
        f"median {median(gaps) * 1000:.1f} ms, 99 % {gaps[len(gaps) * 99 // 100] * 1000:.1f} ms, "
        f"most {gaps[-1] * 1000:.1f} ms"
    )
    assert bodies.most_at_once() == LIMIT
    assert used > 0.85


async def start_latencies(stage: Stage, count: int = 10) -> list[float]:
    """How long an activity that needs no lock takes to start, one after another."""
    return sorted([await stage.run("unrelated") for _ in range(count)])


@pytest.mark.parametrize("way", ["interceptor", "plugin"])
async def test_unrelated_activities_start(stage: Stage, way: str) -> None:
    """Two hundred that wait for a lock leave room in their worker for those that do not."""
    settings = LockSettings(
        application_name=stage.settings.application_name, redis_url=stage.settings.redis_url
    )
    interceptor, plugin = LockInterceptor(settings), LockPlugin(settings)
    client = await Client.connect(stage.temporal.address, plugins=[plugin] if way == "plugin" else [])
    interceptors = [interceptor] if way == "interceptor" else []
    async with stage.worker(locked, unrelated, client=client, interceptors=interceptors):
        idle = await start_latencies(stage)
        async with stage.somebody_else():
            handles = await start_many(stage, "locked", WAITERS)

            async def all_in_line() -> bool:
                return (await stage.state()).waiting == WAITERS

            await until(all_in_line, "all in line", 30)
            line = (await stage.store.inspect(stage.lock(), waiters=WAITERS)).waiters
            present = sum(waiter.present for waiter in line)
            busy = await start_latencies(stage)
        await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 60)
    await interceptor.close()

    measured(
        f"{way}, {WAITERS} in line, {present} of them in the worker: an unrelated activity starts in "
        f"{median(busy) * 1000:.1f} ms, at most {busy[-1] * 1000:.1f} ms; in an idle worker in "
        f"{median(idle) * 1000:.1f} ms, at most {idle[-1] * 1000:.1f} ms"
    )
    assert busy[-1] < 1
    if way == "plugin":
        assert present == WAITERS
        assert median(busy) < 3 * median(idle) + 0.1
