"""A worker whose history is judged: works until it is told to stop, or until it is killed.

Its settings come from the environment, as in production. Bodies do not end while there is a file
``hang-<process>`` in the directory of the history.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import history
from history.hooks import VARIABLE
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from lock_interceptor import LockInterceptor, current_lease, needs_lock

DIRECTORY = Path(os.environ[VARIABLE])
SEATS = int(os.environ.get("SEATS", "3"))
"""How many may have the lock that not only one may have; a deploy changes it."""
STEP = 0.05
"""Seconds between two looks of a body at what it is to do."""


def goes_on(end: float) -> bool:
    """Whether a body has something to do."""
    return (DIRECTORY / f"hang-{os.getpid()}").exists() or time.monotonic() < end


def write() -> int:
    """Write to a resource that refuses late writers; returns with which token."""
    lease = current_lease()
    history.FencedResource().write(lease.token, slot=lease.slot, name=lease.name)
    return lease.token


def duration() -> float:
    """Seconds that a body takes: mostly few, at times so many that the lease has to be renewed."""
    return random.choice((0.05, 0.05, 0.1, 0.1, 0.1, 0.2, 0.3, 1.0))  # noqa: S311 - just work


def in_coroutine(name: str, limit: int) -> Callable[..., object]:
    """An async activity under a lock."""

    @activity.defn(name=name)
    @needs_lock(lock_name=name, max_locks=limit)
    async def work(number: int = 0) -> tuple[int, int]:
        token = await asyncio.to_thread(write)
        end = time.monotonic() + duration()
        while goes_on(end):
            activity.heartbeat()
            await asyncio.sleep(STEP)
        await asyncio.to_thread(write)
        return number, token

    return work


def in_thread(name: str, limit: int) -> Callable[..., object]:
    """A threaded activity under the same lock."""

    @activity.defn(name=f"{name}-in-thread")
    @needs_lock(lock_name=name, max_locks=limit)
    def work(number: int = 0) -> tuple[int, int]:
        token = write()
        end = time.monotonic() + duration()
        while goes_on(end):
            activity.heartbeat()
            time.sleep(STEP)
        write()
        return number, token

    return work


async def main() -> None:
    """Work until the container is stopped."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])
    interceptor = LockInterceptor()
    locks = {"one": 1, "seats": SEATS}
    with ThreadPoolExecutor(100) as threads:
        async with Worker(
            client,
            task_queue=os.environ["TASK_QUEUE"],
            activities=[make(*lock) for lock in locks.items() for make in (in_coroutine, in_thread)],
            activity_executor=threads,
            max_concurrent_activities=100,
            interceptors=[interceptor],
            # longer than bodies take, which is how a deploy interrupts nobody
            graceful_shutdown_timeout=timedelta(seconds=10),
        ):
            (DIRECTORY / f"ready-{os.getpid()}").touch()
            await stop.wait()
    await interceptor.close()


if __name__ == "__main__":
    history.install()
    asyncio.run(main())
