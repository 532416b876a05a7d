"""The permits of a worker with `LockPlugin`: waiters have their own, and everything else is as it was."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import sentinel
from uuid import uuid4

import pytest
from plugin_workers import connect, locked, start, start_alone, worker_of
from stage import Stage, until
from structlog.testing import capture_logs
from temporalio import activity, workflow
from temporalio.worker import SlotReleaseContext, WorkerTuner

from lock_interceptor.room import WaitingRoom
from lock_interceptor.worker.slots import PermitsBesideWaiters


class Counting:
    """An activity's body that counts how many of it run at once, until they may end."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> None:
        """Run."""
        self.running += 1
        self.most = max(self.most, self.running)
        await self.may_end.wait()
        self.running -= 1


@pytest.fixture
def counting() -> Counting:
    """What the activities `plain` and `locked` do."""
    return Counting()


@pytest.fixture
def plain(counting: Counting) -> Callable[..., Any]:
    """An activity without a lock."""

    @activity.defn(name="plain")
    async def plain() -> None:
        await counting()

    return plain


@workflow.defn
class CallsLocally:
    """Runs so many local activities at once."""

    @workflow.run
    async def run(self, count: int) -> None:
        local = (
            workflow.execute_local_activity("plain", schedule_to_close_timeout=timedelta(seconds=20))
            for _ in range(count)
        )
        await asyncio.gather(*local)


async def test_limit_holds_for_what_runs(stage: Stage, counting: Counting, plain: Callable[..., Any]) -> None:
    """With waiters beside them no more activities run at once than the user allows, and not fewer."""
    client = await connect(stage)
    async with (
        worker_of(client, stage.task_queue, plain, locked, max_concurrent_activities=2),
        stage.somebody_else() as guarding,
    ):
        waiting = await start(stage, 6, "locked")
        await stage.until_waiting(6)
        running = await start(stage, 5, "plain")
        await until(lambda: counting.running == 2, "two activities")
        # one that waits does not count, and so must not be counted twice when it ends
        await stage.store.release(guarding)
        counting.may_end.set()
        assert await waiting == ["done"] * 6
        await running
        counting.may_end.clear()
        again = await start(stage, 5, "plain")
        await until(lambda: counting.running == 2, "two activities")
        await asyncio.sleep(0.3)
        assert counting.running == 2
        counting.may_end.set()
        await again
    assert counting.most == 2


async def test_none_is_issued_while_too_many_are_out() -> None:
    """While more permits are out than the limit, as when waiters have got their locks, none follows."""
    room = WaitingRoom(10)
    permits = PermitsBesideWaiters(1, room)
    seats = [room.enter(turn) for turn in range(3)]
    issued = [permits.try_reserve_slot(sentinel.context) for _ in range(5)]
    assert [permit is not None for permit in issued] == [True, True, True, True, False]

    for seat in seats:
        assert seat is not None
        room.leave(seat)
    for _ in range(4):
        assert permits.try_reserve_slot(sentinel.context) is None
        permits.release_slot(SlotReleaseContext(None, sentinel.permit))
    assert permits.try_reserve_slot(sentinel.context) is not None


async def test_own_tuner_stays(stage: Stage) -> None:
    """A tuner of the user's own is used as it is, few wait, and the log says what that means."""
    tuner = WorkerTuner.create_fixed(activity_slots=7)
    client = await connect(stage)
    with capture_logs() as logs:
        async with worker_of(client, stage.task_queue, locked, tuner=tuner) as worker:
            assert worker.config(active_config=True)["tuner"] is tuner
            assert await stage.run("locked") == "done"
    (entry,) = (entry for entry in logs if entry["event"] == "lock.own_tuner")
    assert entry["log_level"] == "info"
    assert entry["waiters"] == 25


async def test_worker_without_activities(stage: Stage) -> None:
    """A worker for workflows only needs no permits for activities."""
    client = await connect(stage)
    async with (
        worker_of(client, stage.task_queue, max_concurrent_activities=3) as worker,
        stage.worker(locked, workflows=[]),
    ):
        assert worker.config(active_config=True)["max_concurrent_activities"] == 3
        assert await stage.run("locked") == "done"


async def test_local_activities_keep_their_limit(
    stage: Stage, counting: Counting, plain: Callable[..., Any]
) -> None:
    """The limits on workflow tasks and local activities hold as they do without the plugin."""
    client = await connect(stage)
    limits = {"max_concurrent_local_activities": 2, "max_concurrent_workflow_tasks": 3}
    async with worker_of(client, stage.task_queue, plain, locked, workflows=[CallsLocally], **limits):
        running = asyncio.ensure_future(
            client.execute_workflow(CallsLocally.run, 5, id=f"wf-{uuid4()}", task_queue=stage.task_queue)
        )
        await until(lambda: counting.running == 2, "two local activities")
        await asyncio.sleep(0.3)
        counting.may_end.set()
        await asyncio.wait_for(running, 20)
    assert counting.most == 2


async def test_each_worker_has_its_own(stage: Stage, counting: Counting, plain: Callable[..., Any]) -> None:
    """Workers of one client neither share permits nor seats: a full one does not hold up another."""
    one_seat = stage.with_settings(max_waiters=1)
    client = await connect(one_seat)
    other_queue = f"other-{stage.task_queue}"
    async with (
        worker_of(client, stage.task_queue, plain, locked, max_concurrent_activities=1),
        worker_of(client, other_queue, plain, locked, max_concurrent_activities=1),
        stage.somebody_else() as guarding,
    ):
        queues = (stage.task_queue, other_queue)
        waiting = [await start_alone(client, "locked", queue) for queue in queues]
        await stage.until_waiting(2)
        running = [await start_alone(client, "plain", queue) for queue in queues]
        await until(lambda: counting.running == 2, "one activity in each worker")
        await stage.store.release(guarding)
        counting.may_end.set()
        await asyncio.gather(*(handle.result() for handle in [*waiting, *running]))


async def test_shutdown_with_waiters(stage: Stage) -> None:
    """Waiters do not hold up a shutdown until its grace is over, and nothing of the worker goes on."""
    before = threads(), set(asyncio.all_tasks())
    client = await connect(stage)
    async with stage.somebody_else() as guarding:
        async with worker_of(client, stage.task_queue, locked):
            results = await start(stage, 20, "locked")
            await stage.until_waiting(20)
            shutdown = time.monotonic()
        assert time.monotonic() - shutdown < 10  # half the grace
        await stage.until_waiting(20, present=False)
        after = threads(), {task for task in asyncio.all_tasks() if task not in before[1]}
        assert after[0] == before[0]
        assert [task for task in after[1] if task.get_name().startswith("lock_interceptor")] == []
        async with worker_of(client, stage.task_queue, locked):
            await stage.until_waiting(20)
            await stage.store.release(guarding)
            assert await asyncio.wait_for(results, 30) == ["done"] * 20


def threads() -> list[str]:
    """The threads of this package."""
    return [each.name for each in threading.enumerate() if each.name.startswith("lock_interceptor")]


async def test_idle_worker_rests(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is nothing to do nobody asks for permits in a loop, not even when all are taken."""
    calls = 0
    reserve = PermitsBesideWaiters.reserve_slot

    async def counted(self: PermitsBesideWaiters, ctx: Any) -> Any:
        nonlocal calls
        calls += 1
        return await reserve(self, ctx)

    monkeypatch.setattr(PermitsBesideWaiters, "reserve_slot", counted)
    client = await connect(stage)
    async with worker_of(client, stage.task_queue, locked, max_concurrent_activities=2):
        assert await stage.run("locked") == "done"
        begin, used = calls, time.process_time()
        await asyncio.sleep(1)
        assert calls - begin <= 5
        assert time.process_time() - used < 0.5
