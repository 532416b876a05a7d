"""A worker process of `test_waiting_stalls` that may be stopped and continued; ends with its standard input.

Its settings come from the environment, as in production.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from activities_under_test import in_coroutine, in_thread
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from lock_interceptor import LockInterceptor


class Noting(Interceptor):
    """Leaves a note when an attempt is over, whatever became of it."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See base class."""
        return _NotingInbound(next)


class _NotingInbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            return await super().execute_activity(input)
        finally:
            input.args[0].note(f"left{activity.info().attempt}")


async def main(address: str, task_queue: str) -> None:
    """Work until told otherwise."""
    client = await Client.connect(address)
    interceptor = LockInterceptor()
    with ThreadPoolExecutor(1) as threads:
        async with Worker(
            client,
            task_queue=task_queue,
            activities=[in_coroutine, in_thread],
            activity_executor=threads,
            interceptors=[Noting(), interceptor],
            # while its only permit is taken it asks for no more, and thus gets nothing while it is stopped
            max_concurrent_activities=1,
            graceful_shutdown_timeout=timedelta(seconds=5),
        ):
            await asyncio.to_thread(sys.stdin.read)
    await interceptor.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
