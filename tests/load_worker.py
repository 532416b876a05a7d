"""A worker process of the tests under load: works until its standard input ends, or until it is killed.

Its settings come from the environment, as in production. It runs activities only.
"""

import asyncio
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import Worker

from lock_interceptor import LockInterceptor, LockPlugin, current_lease, needs_lock

LIMIT = 3


@activity.defn
@needs_lock(lock_name="load", max_locks=LIMIT)
async def work(scene: str, name: str, seconds: float) -> None:
    """Work for so long, and leave a line about it."""
    began = time.monotonic()
    await asyncio.sleep(seconds)
    note(scene, "done", name, began, time.monotonic())


@activity.defn
@needs_lock(lock_name="line")
async def resume(scene: str, name: str) -> None:
    """Fail after a checkpoint until the cue comes; then say which checkpoint was found."""
    found = list(activity.info().heartbeat_details)
    if not cued(scene):
        activity.heartbeat(name, activity.info().attempt)
        note(scene, "checkpoints", name, activity.info().attempt)
        raise ApplicationError("after the checkpoint", category=ApplicationErrorCategory.BENIGN)
    note(scene, "resumed", name, current_lease().token, *found)


def cued(scene: str) -> bool:
    """Whether the cue has come."""
    return Path(scene, "go").exists()


def note(scene: str, file: str, *words: object) -> None:
    """Append a line, whole whoever else writes."""
    handle = os.open(Path(scene, file), os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    try:
        os.write(handle, f"{' '.join(map(str, words))}\n".encode())
    finally:
        os.close(handle)


async def main(address: str, task_queue: str, scene: str, permits: str, way: str) -> None:
    """Work until told otherwise; `way` is "interceptor" or "plugin"."""
    interceptor = LockInterceptor() if way == "interceptor" else None
    client = await Client.connect(address, plugins=[] if interceptor else [LockPlugin()])
    async with Worker(
        client,
        task_queue=task_queue,
        activities=[work, resume],
        interceptors=[interceptor] if interceptor else [],
        max_concurrent_activities=int(permits),
        graceful_shutdown_timeout=timedelta(seconds=5),
    ):
        note(scene, "ready", os.getpid())
        await asyncio.to_thread(sys.stdin.read)
    if interceptor:
        await interceptor.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
