"""A worker process of `test_stopped_worker`: its activities write to a resource that knows fencing tokens.

It works until its standard input ends. Its settings come from the environment, as in production.
"""

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from activities_under_test import STEP, Play
from fenced_resource import FencedResource
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from lock_interceptor import LockInterceptor, current_lease, needs_lock


@activity.defn
@needs_lock(lock_name="fenced")
async def write_in_coroutine(play: Play) -> str:
    """Write at the cue."""
    attempt = play.begin()
    for _ in play.steps():
        await asyncio.sleep(STEP)
    return _write(play, attempt)


@activity.defn
@needs_lock(lock_name="fenced")
def write_in_thread(play: Play) -> str:
    """Write at the cue, and never ask whether the lock is lost."""
    attempt = play.begin()
    for _ in play.steps():
        time.sleep(STEP)
    return _write(play, attempt)


def _write(play: Play, attempt: int) -> str:
    accepted = FencedResource(play.scene).write(current_lease().token)
    play.note(f"wrote{attempt}", "accepted" if accepted else "refused")
    return play.end()


async def main(address: str, task_queue: str) -> None:
    """Work until told otherwise."""
    client = await Client.connect(address)
    interceptor = LockInterceptor()
    with ThreadPoolExecutor(2) as threads:
        async with Worker(
            client,
            task_queue=task_queue,
            activities=[write_in_coroutine, write_in_thread],
            activity_executor=threads,
            interceptors=[interceptor],
            max_concurrent_activities=1,
            graceful_shutdown_timeout=timedelta(seconds=5),
        ):
            await asyncio.to_thread(sys.stdin.read)
    await interceptor.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
