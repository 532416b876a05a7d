"""First come, first served, though those who wait are sent away and come back."""

import asyncio
from datetime import timedelta
from typing import Any

from stage import Stage, until
from temporalio import activity

from lock_interceptor import needs_lock

EXECUTIONS = 60
BODY = 0.2
SEATS = 6
MAX_WAIT = 2.0


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
        handle = await stage.start("in_line", len(handles), schedule_to_close=100)
        handles.append(handle)

        async def arrived(workflow: str = handle.id) -> bool:
            state = await stage.store.inspect(stage.lock(), waiters=EXECUTIONS)
            return any(each.party.workflow == workflow for each in (*state.waiters, *state.holders))

        await until(arrived, "it is in line")


async def test_order_of_arrival(stage: Stage) -> None:
    """Turns come in order of arrival though most are parked and come back."""
    turns, handles = Turns(), []
    stage = stage.with_settings(max_waiters=SEATS, max_wait=timedelta(seconds=MAX_WAIT))
    async with stage.worker(turns.activity()):
        await queue_up(stage, handles, EXECUTIONS)
        await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 90)

    overtaken = [late for late in turns.late() if late]
    print(
        f"\n{EXECUTIONS} in line, {sum(attempt > 1 for attempt in turns.attempts)} of them parked, up to "
        f"{max(turns.attempts)} attempts, {len(overtaken)} overtaken, by {max(overtaken, default=0)} at most"
    )
    assert sorted(turns.order) == list(range(EXECUTIONS))
    assert sum(attempt > 1 for attempt in turns.attempts) > EXECUTIONS // 2
    # a loaded server may bring somebody back a moment late, and a turn or two are gone by then
    assert max(overtaken, default=0) <= 2
    assert len(overtaken) <= SEATS
