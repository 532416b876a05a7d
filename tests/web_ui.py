"""A lock with one holder and two waiters, and where Temporal's Web UI shows these."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

from stage import until
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from lock_interceptor import LockInterceptor, LockSettings, needs_lock
from lock_interceptor.dev import RedisServer, TemporalServer
from lock_interceptor.store import LockId

LOCK = LockId("shop", "payments-api", None)
PATIENCE = 40.0
"""Seconds: a busy machine takes some to start servers and a browser at the same time."""


class Payments:
    """Activities that hold the lock until told to stop."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()

    @activity.defn
    @needs_lock(lock_name=LOCK.name)
    async def charge_card(self) -> None:
        await self.closing.wait()


@workflow.defn
class ChargeOrder:
    """One order."""

    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity("charge_card", schedule_to_close_timeout=timedelta(minutes=30))


@dataclass(frozen=True)
class Checkout:
    """Three orders at the till: the first holds the lock, the others have waited for an attempt at least."""

    temporal: TemporalServer
    orders: list[WorkflowHandle[Any, Any]]
    password: str
    """Redis's."""

    def page(self, order: WorkflowHandle[Any, Any]) -> str:
        """Where the Web UI shows the pending activities of a workflow."""
        where = f"{quote(order.id)}/{order.first_execution_run_id}/pending-activities"
        return f"{self.temporal.ui_url}/namespaces/{self.temporal.namespace}/workflows/{where}"


@contextlib.asynccontextmanager
async def checkout() -> AsyncIterator[Checkout]:
    """Runs in the block, on servers of its own: a Temporal with its Web UI, a Valkey with a password."""
    password, queue = secrets.token_hex(16), "orders"
    with TemporalServer() as temporal, RedisServer("--requirepass", password) as valkey:
        client = await Client.connect(temporal.address)
        settings = LockSettings(
            application_name=LOCK.application,
            redis_url=valkey.url.replace("//", f"//:{password}@"),
            max_wait=timedelta(seconds=1),  # then an attempt yields, and Temporal has something to show
        )
        payments, locks = Payments(), LockInterceptor(settings)
        try:
            async with Worker(
                client,
                task_queue=queue,
                workflows=[ChargeOrder],
                activities=[payments.charge_card],
                interceptors=[locks],
                workflow_runner=UnsandboxedWorkflowRunner(),
                graceful_shutdown_timeout=timedelta(seconds=5),
                identity="worker-1",
            ):
                orders: list[WorkflowHandle[Any, Any]] = []
                for number in (1001, 1002, 1003):
                    name = f"charge-order-{number}"
                    orders.append(await client.start_workflow(ChargeOrder.run, id=name, task_queue=queue))
                    await until(lambda: _has_come(locks, len(orders)), f"{name} at the lock", PATIENCE)
                for order in orders[1:]:
                    await until(partial(_has_yielded, order), f"{order.id} to yield", PATIENCE)
                try:
                    yield Checkout(temporal, orders, password)
                finally:
                    payments.closing.set()
        finally:
            await locks.close()


async def _has_come(locks: LockInterceptor, count: int) -> bool:
    state = await locks.store.inspect(LOCK)
    return len(state.holders) == 1 and state.waiting == count - 1


async def _has_yielded(order: WorkflowHandle[Any, Any]) -> bool:
    pending = (await order.describe()).raw_description.pending_activities
    return bool(pending) and pending[0].last_failure.application_failure_info.type == "LockNotAcquired"
