"""Workers come and go while a hundred wait: nobody loses the place in line or a checkpoint."""

import asyncio
import time
from datetime import timedelta

from activities_under_test import Call, CallActivity
from figures import measured
from load import WorkerProcess, notes, worker_process
from stage import Stage, until

from lock_interceptor.store import Claim, Granted, Queueing

WAITERS = 100
HEARTBEAT = 3.0
"""Seconds after which the server misses a worker that was killed."""


async def line_in(stage: Stage, *workers: WorkerProcess) -> list[str]:
    """The workflows in line, in order, once all of them wait in these workers."""
    names = {str(worker.process.pid) for worker in workers}

    async def everybody_here() -> list[str] | None:
        line = (await stage.store.inspect(stage.lock("line"), waiters=2 * WAITERS)).waiters
        here = [each for each in line if each.present and each.party.worker.split("@")[0] in names]
        return [each.party.workflow for each in line] if len(here) == len(line) == WAITERS else None

    line: list[str] = await until(everybody_here, "everybody in line and in a worker", 60)
    return line


async def close_the_lock(stage: Stage) -> Claim:
    """Take the lock when nobody holds it, before all who stand in line for it."""
    claim = Claim(lock=stage.lock("line"), owner="gate", waiter="gate", limit=1, priority=1)
    queueing = Queueing(presence=timedelta(seconds=30), keep=timedelta(seconds=30))

    async def granted() -> bool:
        answer = await stage.store.acquire(claim, lease=timedelta(minutes=2), queueing=queueing)
        return isinstance(answer, Granted)

    await until(granted, "the lock")
    return claim


async def test_rolling_deploy(stage: Stage) -> None:
    """Workers are replaced one by one, gracefully and by a kill, and the line stays as it was."""
    async with (
        stage.worker(),
        worker_process(stage, "plugin") as first,
        worker_process(stage, "plugin") as second,
    ):
        handles = []
        for number in range(WAITERS):
            call = Call("resume", [str(stage.scene), str(number)], schedule_to_close=110, heartbeat=HEARTBEAT)
            handles.append(
                await stage.client.start_workflow(
                    CallActivity.run, call, id=f"{stage.task_queue}-{number}", task_queue=stage.task_queue
                )
            )
        # everybody fails after a checkpoint, and comes again
        await until(
            lambda: len({name for name, _ in notes(stage.scene, "checkpoints")}) == WAITERS,
            "a checkpoint of everybody",
            30,
        )
        gate = await close_the_lock(stage)
        before = await line_in(stage, first, second)
        stage.cue()

        start = time.monotonic()
        async with worker_process(stage, "plugin") as third:
            await first.stop()
            async with worker_process(stage, "plugin") as fourth:
                await second.stop()
                assert await line_in(stage, third, fourth) == before
                graceful = time.monotonic() - start

                start = time.monotonic()
                await third.kill()
                async with worker_process(stage, "plugin") as fifth:
                    assert await line_in(stage, fourth, fifth) == before
                    killed = time.monotonic() - start
                    await stage.store.release(gate)
                    await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 60)

    checkpoints = dict(notes(stage.scene, "checkpoints"))
    resumed = {name: (int(token), found) for name, token, *found in notes(stage.scene, "resumed")}
    measured(
        f"{WAITERS} wait: two graceful replacements took {graceful:.1f} s, a killed worker {killed:.1f} s "
        "until everybody was back"
    )
    in_order = sorted(resumed, key=lambda name: resumed[name][0])
    assert [f"{stage.task_queue}-{name}" for name in in_order] == before
    assert {name: found for name, (_, found) in resumed.items()} == {
        name: [name, attempt] for name, attempt in checkpoints.items()
    }
