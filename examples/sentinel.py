"""Locks on a Redis that Sentinel watches; nothing but the settings differs.

REDIS_SENTINEL_HOSTS=host1:26379,host2:26379,host3:26379 REDIS_SENTINEL_SERVICE=mymaster
python examples/sentinel.py
"""

import asyncio
import os
from datetime import timedelta
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from lock_interceptor import LockInterceptor, LockSettings, current_lease, needs_lock


@activity.defn
@needs_lock(lock_name="licence", max_locks=3)
async def render(scene: str) -> str:
    # each holder has a seat of its own: an API key, a GPU, a licence
    return f"{scene} with seat {current_lease().slot}"


@workflow.defn
class Render:
    @workflow.run
    async def run(self, scene: str) -> str:
        return await workflow.execute_activity(render, scene, schedule_to_close_timeout=timedelta(minutes=2))


async def main() -> None:
    settings = LockSettings()  # from the environment
    if not settings.redis_sentinel_hosts:
        raise SystemExit("set REDIS_SENTINEL_HOSTS to host:port,host:port,...")
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"))
    locks = LockInterceptor(settings)
    await locks.check()  # a mistake in the settings shows here, before any activity runs
    queue = f"licence-{uuid4()}"
    async with Worker(
        client, task_queue=queue, workflows=[Render], activities=[render], interceptors=[locks]
    ):
        for rendered in await asyncio.gather(
            *(
                client.execute_workflow(Render.run, scene, id=str(uuid4()), task_queue=queue)
                for scene in ("opening", "chase", "ending")
            )
        ):
            print(rendered)
    await locks.close()


if __name__ == "__main__":
    asyncio.run(main())
