"""Many more activities than slots: the slots are in use, and other activities do not notice."""

import asyncio
import time
from statistics import median
from uuid import uuid4

import pytest
from activities_under_test import Call, CallActivity
from load import Intervals, notes, worker_process
from load_worker import LIMIT
from stage import Stage, until

WORKFLOWS = 300
SECONDS = 0.2
TENTH = WORKFLOWS // 10


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


@pytest.mark.parametrize("way", ["interceptor", "plugin"])
async def test_slots_are_in_use(stage: Stage, way: str) -> None:
    """While more wait than there are slots, hardly any of the slots' time is lost."""
    async with (
        stage.worker(),
        worker_process(stage, way) as _,
        worker_process(stage, way) as _,
    ):
        handles = await start_many(stage, "work", WORKFLOWS, SECONDS)
        scheduled = time.monotonic()
        await until(lambda: len(notes(stage.scene, "done")) == WORKFLOWS, "all done", 80)
        await asyncio.gather(*(handle.result() for handle in handles))

    bodies = Intervals.of(stage.scene)
    begins, ends = (sorted(times) for times in zip(*bodies.times, strict=True))
    # from when all stand in line and a tenth is done, until the last tenth begins
    start, end = max(ends[TENTH - 1], scheduled), begins[-TENTH]
    used = bodies.slot_use(LIMIT, start, end)
    gaps = sorted(bodies.gaps(LIMIT, start, end))
    print(
        f"\n{way}: slots in use {used:.1%} of {end - start:.1f} s; from the end of a body to the next: "
        f"median {median(gaps) * 1000:.1f} ms, 99 % {gaps[len(gaps) * 99 // 100] * 1000:.1f} ms, "
        f"most {gaps[-1] * 1000:.1f} ms"
    )
    assert bodies.most_at_once() == LIMIT
    assert used > 0.85
