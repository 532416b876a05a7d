"""A worker process of `test_crash`: works until its standard input ends, or until it is killed.

Its settings come from the environment, as in production.
"""

import asyncio
import os
import random
import sys
import time
from datetime import timedelta
from pathlib import Path

import history
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from lock_interceptor import LockInterceptor, current_lease, needs_lock

LIMIT = 3
MAX_BODY = 0.05


@activity.defn
@needs_lock(lock_name="crash", max_locks=LIMIT)
async def work(scene: str) -> int:
    """Leave a line at the begin and at the end: process, token, time on the machine's clock."""
    note = os.open(Path(scene, "intervals"), os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    try:
        token = current_lease().token
        os.write(note, f"begin {os.getpid()} {token} {time.monotonic()}\n".encode())
        await asyncio.sleep(60 if frozen(scene) else random.uniform(0.002, MAX_BODY))  # noqa: S311 - just work
        os.write(note, f"end {os.getpid()} {token} {time.monotonic()}\n".encode())
    finally:
        os.close(note)
    return token


def frozen(scene: str) -> bool:
    """Whether this process is to hold on to its locks from now on."""
    return Path(scene, f"freeze-{os.getpid()}").exists()


async def main(address: str, task_queue: str) -> None:
    """Work until told otherwise."""
    client = await Client.connect(address)
    interceptor = LockInterceptor()
    async with Worker(
        client,
        task_queue=task_queue,
        activities=[work],
        interceptors=[interceptor],
        graceful_shutdown_timeout=timedelta(seconds=5),
    ):
        await asyncio.to_thread(sys.stdin.read)
    await interceptor.close()


if __name__ == "__main__":
    history.install()
    asyncio.run(main(*sys.argv[1:]))
