"""First come, first served, though those who wait are sent away and come back."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from figures import measured
from stage import Stage, until
from temporalio import activity

from lock_interceptor import needs_lock

EXECUTIONS = 60
BODY = 0.2
SEATS = 6
MAX_WAIT = 2.0
HEARTBEAT = 5.0
"""Seconds after which the server misses an attempt that it gave to a worker which was just stopping."""


class Turns:
    """Who had the lock, in order, and in which attempt."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.attempts: list[int] = []

    def activity(self) -> Any:
        """The activity that everybody waits for."""

        @activity.defn(name="in_line")
        @needs_lock(lock_name="lock")
        async def in_line(number: int) -> None:
            self.order.append(number)
            self.attempts.append(activity.info().attempt)
            await asyncio.sleep(BODY)

        return in_line

    def late(self) -> list[int]:
        """For each execution by how many later ones it was overtaken."""
        return [
            sum(other > number for other in self.order[: self.order.index(number)])
            for number in range(len(self.order))
        ]


async def queue_up(stage: Stage, handles: list[Any], count: int) -> None:
    """Start executions one after another, each when the one before stands in line or has had its turn."""
    for _ in range(count):
        handle = await stage.start("in_line", len(handles), schedule_to_close=100, heartbeat=HEARTBEAT)
        handles.append(handle)

        async def arrived(workflow: str = handle.id) -> bool:
            state = await stage.store.inspect(stage.lock(), waiters=EXECUTIONS)
            return any(each.party.workflow == workflow for each in (*state.waiters, *state.holders))

        await until(arrived, "it is in line")


def report(turns: Turns, what: str, missed: Sequence[int] = ()) -> list[int]:
    """Print what was seen; returns by how many each was overtaken who was, and was not `missed`."""
    overtaken = [late for number, late in enumerate(turns.late()) if late and number not in missed]
    parked = sum(n > 1 for n in turns.attempts)
    measured(
        f"{what}: {EXECUTIONS} in line, {parked} of them came back, up to {max(turns.attempts)} attempts, "
        f"{len(overtaken)} overtaken, by {max(overtaken, default=0)} at most"
    )
    assert sorted(turns.order) == list(range(EXECUTIONS))
    assert parked > EXECUTIONS // 2
    return overtaken


async def test_order_of_arrival(stage: Stage) -> None:
    """Turns come in order of arrival though most are parked and come back."""
    turns, handles = Turns(), []
    stage = stage.with_settings(max_waiters=SEATS, max_wait=timedelta(seconds=MAX_WAIT))
    async with stage.worker(turns.activity()):
        await queue_up(stage, handles, EXECUTIONS)
        await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 90)

    overtaken = report(turns, "one worker")
    # a loaded server may bring somebody back a moment late, and a turn or two are gone by then
    assert max(overtaken, default=0) <= 2
    assert len(overtaken) <= SEATS


async def test_order_over_a_restart(stage: Stage) -> None:
    """Turns come in order of arrival though the worker is restarted while everybody waits."""
    turns, handles = Turns(), []
    stage = stage.with_settings(max_waiters=SEATS, max_wait=timedelta(seconds=MAX_WAIT))
    async with stage.worker(turns.activity()):
        await queue_up(stage, handles, EXECUTIONS)
        await until(lambda: len(turns.order) >= EXECUTIONS // 2, "half of the turns", 60)
        # the body that runs ends in peace; all others come back with their places
    async with stage.worker(turns.activity()):
        await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 90)

    # Temporal may give a task to a worker that has just stopped to ask for one. It misses that attempt after
    # the heartbeat timeout, and until then nobody can come back in its stead
    missed = [number for number, handle in enumerate(handles) if await was_missed(handle)]
    assert len(missed) <= SEATS
    overtaken = report(
        turns, f"restarted, {len(missed)} attempts given to the worker that had stopped", missed
    )
    assert max(overtaken, default=0) <= 2
    assert len(overtaken) <= SEATS


async def was_missed(handle: Any) -> bool:
    """Whether the server never heard of an attempt that came before the last one."""
    started = [
        event.activity_task_started_event_attributes.last_failure
        for event in (await handle.fetch_history()).events
        if event.HasField("activity_task_started_event_attributes")
    ]
    return any(failure.HasField("timeout_failure_info") for failure in started)


async def test_order_with_a_seat_for_everybody(stage: Stage) -> None:
    """Where all can wait in the worker order is exact, though every attempt ends and the next one comes."""
    turns, handles = Turns(), []
    stage = stage.with_settings(max_waiters=4 * EXECUTIONS, max_wait=timedelta(seconds=MAX_WAIT))
    permits = 8 * EXECUTIONS

    async def all_came_back() -> bool:
        pending = await asyncio.gather(*(stage.pending(handle) for handle in handles))
        return all(each is not None and each.attempt >= 4 for each in pending)

    async with stage.somebody_else(), stage.worker(turns.activity(), max_concurrent_activities=permits):
        await queue_up(stage, handles, EXECUTIONS)
        await until(all_came_back, "four attempts of everybody", 60)
    async with stage.worker(turns.activity(), max_concurrent_activities=permits):
        await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 90)

    assert not report(turns, "a seat for everybody, the lock held at first, restarted")
