"""Workers whose client brings the plugin along, and activities for them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

from activities_under_test import CallActivity
from stage import Stage
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from lock_interceptor import LockPlugin, needs_lock


@activity.defn
@needs_lock(lock_name="lock")
async def locked() -> str:
    return "done"


@contextlib.asynccontextmanager
async def worker_of(
    client: Client, task_queue: str, *activities: Callable[..., Any], **options: Any
) -> AsyncIterator[Worker]:
    """A worker as users make it: everything that it needs comes with the client."""
    options.setdefault("workflows", [CallActivity])
    async with Worker(
        client,
        task_queue=task_queue,
        activities=activities,
        workflow_runner=UnsandboxedWorkflowRunner(),
        graceful_shutdown_timeout=timedelta(seconds=20),
        **options,
    ) as worker:
        yield worker


async def connect(stage: Stage) -> Client:
    """A client with a plugin."""
    return await Client.connect(stage.temporal.address, plugins=[LockPlugin(stage.settings)])


async def start(stage: Stage, count: int, activity: str, **how: Any) -> "asyncio.Future[list[Any]]":
    """Start so many workflows that call the activity, and return their results to come."""
    handles = [await stage.start(activity, **how) for _ in range(count)]
    return asyncio.gather(*(handle.result() for handle in handles))


async def start_alone(client: Client, what: str, task_queue: str) -> Any:
    """Start an activity without a workflow."""
    return await client.start_activity(
        what,
        id=f"{what}-{uuid4()}",
        task_queue=task_queue,
        schedule_to_close_timeout=timedelta(seconds=60),
    )
