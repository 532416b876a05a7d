"""The demo's workflow and its three activities, as a user of the package would write them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy

from lock_interceptor import current_lease, needs_lock
from lock_interceptor.dev.demo.journal import Journal
from lock_interceptor.dev.demo.plan import API, API_LIMIT, LEDGER, TENANT, Order

HEARTBEAT_EVERY = 0.5


@workflow.defn
class Fulfil:
    """Fulfils one order. Nothing in it knows of locks."""

    @workflow.run
    async def run(self, order: Order) -> None:
        """Run the order's activity."""
        await workflow.execute_activity(
            order.activity,
            order,
            task_queue=order.queue,
            schedule_to_close_timeout=timedelta(minutes=10),
            start_to_close_timeout=timedelta(minutes=4),
            heartbeat_timeout=timedelta(seconds=3),
            retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=1),
        )


class Work:
    """The activities; what they do is take time, and note down when."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @activity.defn
    @needs_lock(lock_name=LEDGER)
    async def post_to_ledger(self, order: Order) -> None:
        """One at a time, anywhere."""
        await self._work(order)

    @activity.defn
    @needs_lock(lock_name=API, max_locks=API_LIMIT)
    async def call_api(self, order: Order) -> None:
        """Three at a time, anywhere."""
        await self._work(order)

    @activity.defn
    @needs_lock(lock_name=TENANT, key=lambda order: order.tenant)
    async def update_tenant(self, order: Order) -> None:
        """One at a time for each tenant."""
        await self._work(order)

    async def _work(self, order: Order) -> None:
        lease = current_lease()
        # without locks there is no key to ask the lease for
        lock = f"{TENANT}[{order.tenant}]" if lease.name == TENANT else lease.label
        which = {"order": order.id, "lock": lock, "token": lease.token, "slot": lease.slot}
        done = False
        self._journal.write("start", **which)
        try:
            left = order.seconds
            while left > 0:
                activity.heartbeat()
                await asyncio.sleep(min(left, HEARTBEAT_EVERY))
                left -= HEARTBEAT_EVERY
            done = True
        finally:
            self._journal.write("end", **which, done=done)
