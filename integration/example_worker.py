r"""An ordinary worker, for docker-compose.yml: it packs orders, three at a time for each region.

Give it orders, and see in Temporal's Web UI and by ``lock-interceptor list`` who waits and who holds:

    docker compose exec temporal temporal workflow start --type Ship --task-queue orders \
        --input '"north"' --input 1
    docker compose exec worker lock-interceptor list
"""

import asyncio
import os
import random
import signal
import socket
import time
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from lock_interceptor import LockPlugin, current_lease, needs_lock

LIMIT = 3


@dataclass
class Parcel:
    """What was packed when, and by whom."""

    order: int
    worker: str
    seat: int
    token: int
    began: float
    ended: float


@activity.defn
@needs_lock(lock_name="packing", max_locks=LIMIT, key=lambda region, _: region)
async def pack(region: str, order: int) -> Parcel:
    """Pack one order."""
    lease = current_lease()
    began = time.monotonic()
    activity.logger.info("order %d for %s at seat %d", order, region, lease.slot)
    await asyncio.sleep(random.uniform(0.05, 0.2))  # noqa: S311 - the work
    return Parcel(order, socket.gethostname(), lease.slot, lease.token, began, time.monotonic())


@workflow.defn
class Ship:
    """Ships one order."""

    @workflow.run
    async def run(self, region: str, order: int) -> Parcel:
        """Have it packed."""
        return await workflow.execute_activity(
            pack,
            args=[region, order],
            schedule_to_close_timeout=timedelta(minutes=10),
            heartbeat_timeout=timedelta(seconds=5),
        )


async def main() -> None:
    """Work until the container is stopped."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    address = os.environ.get("TEMPORAL_ADDRESS", "localhost:7233")
    client = await Client.connect(address, plugins=[LockPlugin()])
    async with Worker(
        client,
        task_queue="orders",
        workflows=[Ship],
        activities=[pack],
        graceful_shutdown_timeout=timedelta(seconds=10),
    ):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
