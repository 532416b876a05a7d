"""A threaded activity that writes to a database which rejects late writers by the fencing token.

A lock cannot stop a thread that was frozen until its lease ended and somebody else went on. The resource can:
it keeps the highest token that it has seen, and refuses a lower one.

Run it against the servers of ``lock-interceptor dev``:

    python examples/fenced_thread.py
"""

import asyncio
import os
import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from lock_interceptor import LockInterceptor, current_lease, needs_lock


def add(database: str, amount: int, token: int) -> bool:
    """Add to the balance unless a holder with a later token has written already."""
    with sqlite3.connect(database) as connection:
        changed = connection.execute(
            "UPDATE account SET balance = balance + ?, token = ? WHERE token <= ?", (amount, token, token)
        )
    return changed.rowcount == 1


@activity.defn
@needs_lock(lock_name="ledger")
def book(database: str, amount: int) -> int:
    lease = current_lease()
    for _ in range(3):  # a long computation, in steps
        activity.heartbeat()  # raises LockLost here, once the lock is lost
        lease.raise_if_lost()  # the same, for loops without heartbeats
    assert add(database, amount, lease.token)
    return lease.token


@workflow.defn
class Book:
    @workflow.run
    async def run(self, database: str) -> int:
        return await workflow.execute_activity(
            book,
            args=[database, 10],
            schedule_to_close_timeout=timedelta(minutes=2),
            heartbeat_timeout=timedelta(seconds=5),
        )


async def main(database: str) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE account (balance INTEGER, token INTEGER)")
        connection.execute("INSERT INTO account VALUES (0, 0)")
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"))
    locks = LockInterceptor()
    queue = f"ledger-{uuid4()}"
    with ThreadPoolExecutor(10) as pool:
        async with Worker(
            client,
            task_queue=queue,
            workflows=[Book],
            activities=[book],
            activity_executor=pool,
            interceptors=[locks],
        ):
            tokens = await asyncio.gather(
                *(
                    client.execute_workflow(Book.run, database, id=str(uuid4()), task_queue=queue)
                    for _ in range(8)
                )
            )
    await locks.close()
    late = add(database, 1_000_000, min(tokens))
    with sqlite3.connect(database) as connection:
        (balance,) = connection.execute("SELECT balance FROM account").fetchone()
    verdict = "let in" if late else "refused"
    print(f"balance {balance} after {len(set(tokens))} bookings; a late writer was {verdict}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(str(Path(directory) / "ledger.sqlite")))
