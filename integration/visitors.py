"""Workflows that keep coming for locks, run by the test itself: containers come and go, these stay."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

ACTIVITIES = ("one", "seats", "one-in-thread", "seats-in-thread")


@workflow.defn
class Visitor:
    """Comes for a lock again and again."""

    def __init__(self) -> None:
        self._enough = False

    @workflow.run
    async def run(self, activity: str, number: int, times: int, heartbeat: float) -> list[tuple[int, int]]:
        """So many times, or until it is enough; returns what each time has returned."""
        visits: list[tuple[int, int]] = []
        while not self._enough and len(visits) < times:
            visits.append(
                await workflow.execute_activity(
                    activity,
                    number,
                    result_type=tuple[int, int],
                    schedule_to_close_timeout=timedelta(minutes=2),
                    heartbeat_timeout=timedelta(seconds=heartbeat),
                    retry_policy=RetryPolicy(
                        initial_interval=timedelta(seconds=0.2), backoff_coefficient=1.0
                    ),
                )
            )
        return visits

    @workflow.signal
    def enough(self) -> None:
        """Come no more."""
        self._enough = True


class Visitors:
    """Many of them."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue
        self._handles: list[WorkflowHandle[Visitor, list[tuple[int, int]]]] = []

    async def come(self, activity: str, times: int = 10_000, heartbeat: float = 3) -> None:
        """One more of them; `heartbeat` is after how many seconds the server misses a worker that is gone."""
        number = len(self._handles)
        handle = await self._client.start_workflow(
            Visitor.run,
            args=[activity, number, times, heartbeat],
            id=f"visitor-{number}-{uuid4()}",
            task_queue=self._task_queue,
        )
        self._handles.append(handle)

    async def done(self, *, enough: bool = True, timeout: float = 60) -> list[tuple[int, int]]:
        """Wait until they have ended, told to or by themselves: by whom and with which token, each visit."""
        if enough:
            await asyncio.gather(*(handle.signal(Visitor.enough) for handle in self._handles))
        async with asyncio.timeout(timeout):
            visits = await asyncio.gather(*(handle.result() for handle in self._handles))
        return [visit for each in visits for visit in each]


@contextlib.asynccontextmanager
async def visiting(client: Client, task_queue: str) -> AsyncIterator[Visitors]:
    """Run the workflows of visitors here; their activities are for other workers."""
    async with Worker(
        client, task_queue=task_queue, workflows=[Visitor], workflow_runner=UnsandboxedWorkflowRunner()
    ):
        yield Visitors(client, task_queue)
