"""One user of a connection at a time, and a schema change that gives up instead of waiting.

Run it against the servers of ``lock-interceptor dev``:

    python examples/connection_mutex.py
"""

import asyncio
import os
from datetime import timedelta
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from lock_interceptor import LockInterceptor, needs_lock

users: list[str] = []
in_use = asyncio.Event()


@activity.defn
@needs_lock(lock_name="connection", key=lambda connection, _: connection)
async def load(connection: str, table: str) -> str:
    users.append(table)
    in_use.set()
    assert users == [table], "somebody else uses the connection"
    await asyncio.sleep(0.2)
    users.remove(table)
    return table


@activity.defn
@needs_lock(lock_name="connection", key=lambda connection: connection, on_conflict="fail")
async def change_schema(connection: str) -> None:
    users.append("schema")


@workflow.defn
class Load:
    @workflow.run
    async def run(self, table: str) -> str:
        return await workflow.execute_activity(
            load, args=["warehouse", table], schedule_to_close_timeout=timedelta(minutes=2)
        )


@workflow.defn
class ChangeSchema:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(
            change_schema, "warehouse", schedule_to_close_timeout=timedelta(minutes=2)
        )


async def main() -> None:
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"))
    locks = LockInterceptor()
    queue = f"connection-{uuid4()}"
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Load, ChangeSchema],
        activities=[load, change_schema],
        interceptors=[locks],
    ):
        loads = asyncio.gather(
            *(
                client.execute_workflow(Load.run, table, id=str(uuid4()), task_queue=queue)
                for table in ("orders", "items", "customers", "returns")
            )
        )
        await in_use.wait()
        try:
            await client.execute_workflow(ChangeSchema.run, id=str(uuid4()), task_queue=queue)
        except WorkflowFailureError as error:
            refusal = error.cause.__cause__
            assert isinstance(refusal, ApplicationError)
            print(f"schema change refused: {refusal.type}: {refusal.message}")
        print(f"{len(await loads)} tables loaded, one at a time")
    await locks.close()


if __name__ == "__main__":
    asyncio.run(main())
