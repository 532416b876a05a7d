"""Activities, workflows and workers of the benchmarks that go through Temporal."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from measuring import percentile
from polled_lock import POLLED_ACTIVITIES, polled
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from lock_interceptor import LockInterceptor, needs_lock

LIMIT = 3
PERMITS = 100
bodies: list[tuple[float, float]] = []
"""When bodies began and ended, by the monotonic clock: they run in this process."""


@activity.defn
async def bare_async(key: str) -> str:
    return key


@activity.defn
def bare_sync(key: str) -> str:
    return key


@activity.defn
@needs_lock(lock_name="cost", key=lambda key: key)
async def locked_async(key: str) -> str:
    return key


@activity.defn
@needs_lock(lock_name="cost", key=lambda key: key)
def locked_sync(key: str) -> str:
    return key


@activity.defn
@needs_lock(lock_name="use", max_locks=LIMIT)
async def work_of_three(seconds: float) -> None:
    await timed(seconds)


@activity.defn
@needs_lock(lock_name="use-one")
async def work_of_one(seconds: float) -> None:
    await timed(seconds)


@activity.defn
async def timed_body(seconds: float) -> None:
    """For the scheme that takes its lock in activities of its own."""
    await timed(seconds)


async def timed(seconds: float) -> None:
    began = time.monotonic()
    await asyncio.sleep(seconds)
    bodies.append((began, time.monotonic()))


@dataclass
class Burst:
    """Chains of activities, in parallel; `polled` takes a lock around each as activities."""

    activity: str
    chains: int
    length: int
    run: str
    polled: bool = False


@workflow.defn
class Bursts:
    """Calls the activity, each with a key of its own."""

    @workflow.run
    async def run(self, burst: Burst) -> None:
        await asyncio.gather(*(self._chain(burst, chain) for chain in range(burst.chains)))

    async def _chain(self, burst: Burst, chain: int) -> None:
        for number in range(burst.length):
            key = f"{burst.run}-{chain}-{number}"
            if burst.polled:
                async with polled(key, limit=1, interval=timedelta(seconds=1)):
                    await _call(burst.activity, key)
            else:
                await _call(burst.activity, key)


@workflow.defn
class Turn:
    """Calls one activity that works for so long."""

    @workflow.run
    async def run(self, activity: str, seconds: float) -> None:
        await _call(activity, seconds)


@workflow.defn
class PolledTurn:
    """The same, with a lock taken and given back by activities."""

    @workflow.run
    async def run(self, lock: str, seconds: float, interval: float) -> None:
        async with polled(lock, limit=1, interval=timedelta(seconds=interval)):
            await _call("timed_body", seconds)


async def _call(activity: str, argument: Any) -> None:
    await workflow.execute_activity(activity, argument, schedule_to_close_timeout=timedelta(minutes=10))


@contextlib.asynccontextmanager
async def worker(
    client: Client, queue: str, locks: LockInterceptor | None, permits: int = PERMITS
) -> AsyncIterator[None]:
    """A worker for everything here. Without a sandbox, so that workflows add as little as they can."""
    activities = [
        bare_async, bare_sync, locked_async, locked_sync, work_of_three, work_of_one, timed_body,
        *POLLED_ACTIVITIES,
    ]  # fmt: skip
    with ThreadPoolExecutor(permits) as executor:
        async with Worker(
            client,
            task_queue=queue,
            workflows=[Bursts, Turn, PolledTurn],
            activities=activities,
            activity_executor=executor,
            interceptors=[locks] if locks else [],
            max_concurrent_activities=permits,
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            yield


@dataclass(frozen=True)
class Course:
    """What a workflow's history tells."""

    rate: float
    """Units of work a second: activities, or activities with their locks."""
    p50: float
    p99: float
    events: float
    """History events for each unit of work."""


async def run_burst(client: Client, queue: str, burst: Burst) -> Course:
    handle = await client.start_workflow(
        Bursts.run, burst, id=f"burst-{burst.run}-{secrets.token_hex(4)}", task_queue=queue
    )
    await handle.result()
    history = await handle.fetch_history()
    return _course(history.events, burst)


def _course(events: Sequence[Any], burst: Burst) -> Course:
    units = burst.chains * burst.length
    scheduled: dict[int, datetime] = {}
    spans: list[tuple[datetime, datetime]] = []
    for event in events:
        at = event.event_time.ToDatetime()
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled[event.event_id] = at
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            spans.append((scheduled[event.activity_task_completed_event_attributes.scheduled_event_id], at))
    whole = (max(end for _, end in spans) - min(begin for begin, _ in spans)).total_seconds()
    took = [(end - begin).total_seconds() for begin, end in spans]
    return Course(units / whole, median(took), percentile(took, 0.99), len(events) / units)


@dataclass(frozen=True)
class Use:
    """How well slots were used, from when bodies began and ended."""

    used: float
    gaps: list[float]


def slot_use(times: Sequence[tuple[float, float]], limit: int, start: float, end: float) -> Use:
    """Between two moments."""
    ends = sorted(ended for _, ended in times)
    begins = sorted(began for began, _ in times)
    used = sum(max(min(ended, end) - max(began, start), 0.0) for began, ended in times)
    gaps = [
        max(began - ends[number - limit], 0.0)
        for number, began in enumerate(begins)
        if number >= limit and start <= began <= end
    ]
    return Use(used / (limit * (end - start)), gaps)
