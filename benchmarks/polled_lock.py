"""The other way to lock: acquire and release as activities of the workflow, tried again at a fixed interval.

Written for the comparison, and kept fair: the client is shared, a try is one round trip, and who gives up
is not part of it. With several slots a try picks one at random.
"""

import contextlib
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

LEASE_MS = 600_000
client: Any = None
"""The Redis client, set before the worker starts."""


class Busy(ApplicationError):
    """To be retried."""

    def __init__(self) -> None:
        super().__init__("busy", category=ApplicationErrorCategory.BENIGN)


@activity.defn
async def take_polled(lock: str, limit: int, owner: str) -> str:
    slot = f"{lock}:{random.randrange(limit)}"  # noqa: S311 - no secret
    if not await client.set(slot, owner, nx=True, px=LEASE_MS):
        raise Busy
    return slot


@activity.defn
async def give_back_polled(slot: str, owner: str) -> None:
    script = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"
    await client.eval(script, 1, slot, owner)


POLLED_ACTIVITIES = (take_polled, give_back_polled)


@contextlib.asynccontextmanager
async def polled(lock: str, *, limit: int, interval: timedelta) -> AsyncIterator[None]:
    """In a workflow: hold the lock while entered."""
    owner = str(workflow.uuid4())
    timeout = timedelta(minutes=10)
    slot = await workflow.execute_activity(
        take_polled,
        args=[lock, limit, owner],
        schedule_to_close_timeout=timeout,
        retry_policy=RetryPolicy(initial_interval=interval, backoff_coefficient=1.0),
    )
    try:
        yield
    finally:
        await workflow.execute_activity(
            give_back_polled, args=[slot, owner], schedule_to_close_timeout=timeout
        )
