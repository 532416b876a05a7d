"""At most two calls at once to an API, for each tenant.

Run it against the servers of ``lock-interceptor dev``:

    python examples/api_limit_per_tenant.py
"""

import asyncio
import os
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from lock_interceptor import LockPlugin, needs_lock


@dataclass
class Call:
    tenant: str
    number: int


calls_in_flight: dict[str, int] = {}
most_in_flight: dict[str, int] = {}


@activity.defn
@needs_lock(lock_name="crm-api", max_locks=2, key=lambda call: call.tenant)
async def call_api(call: Call) -> str:
    tenant = call.tenant
    calls_in_flight[tenant] = calls_in_flight.get(tenant, 0) + 1
    most_in_flight[tenant] = max(most_in_flight.get(tenant, 0), calls_in_flight[tenant])
    await asyncio.sleep(0.1)  # the call
    calls_in_flight[tenant] -= 1
    return f"{tenant}/{call.number}"


@workflow.defn
class Sync:
    @workflow.run
    async def run(self, call: Call) -> str:
        return await workflow.execute_activity(
            call_api,
            call,
            schedule_to_close_timeout=timedelta(minutes=2),  # bounds waiting, running and holding
            heartbeat_timeout=timedelta(seconds=5),  # lets a waiting activity notice a cancel
        )


async def main() -> None:
    client = await Client.connect(
        os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"), plugins=[LockPlugin()]
    )
    queue = f"api-limit-{uuid4()}"
    async with Worker(client, task_queue=queue, workflows=[Sync], activities=[call_api]):
        calls = [Call(tenant, number) for number in range(6) for tenant in ("acme", "globex", "initech")]
        done = await asyncio.gather(
            *(client.execute_workflow(Sync.run, call, id=str(uuid4()), task_queue=queue) for call in calls)
        )
    print(f"{len(done)} calls done")
    for tenant, most in sorted(most_in_flight.items()):
        print(f"{tenant}: at most {most} at once")


if __name__ == "__main__":
    asyncio.run(main())
