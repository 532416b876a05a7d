"""The whole demo: servers, workers, orders with and without locks, and all that was measured."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError

from lock_interceptor.dev.demo.crew import Crew, DemoError
from lock_interceptor.dev.demo.journal import now
from lock_interceptor.dev.demo.plan import LEASE, LOCKS, WORKERS, Order, demo_settings, make_orders
from lock_interceptor.dev.demo.promises import Run
from lock_interceptor.dev.demo.record import Record
from lock_interceptor.dev.demo.view import View
from lock_interceptor.dev.demo.watch import Watch
from lock_interceptor.dev.demo.work import Fulfil
from lock_interceptor.dev.servers import DevServers, TemporalServer
from lock_interceptor.redis_store import RedisLockStore

_READY_SECONDS = 60.0
_PATIENCE = 60.0
_PATIENCE_PER_ORDER = 1.0
"""Seconds after which what is not done counts as not done; a busy machine may need a good part of them."""
_REQUESTS_AT_ONCE = 20


def run_demo(*, workflows: int, seed: int, folder: Path, view: View) -> Run:
    """Run it all; takes about half a minute. Nothing is left running afterwards, whatever happens.

    Args:
        workflows: how many.
        seed: the same one makes the same orders.
        folder: where the workers' journals and logs go.
        view: where to tell what goes on.

    Raises:
        DevServerError: a server is missing or does not start.
        DemoError: the demo could not be carried through.
        KeyboardInterrupt: by Ctrl-C, when everything has been ended.
    """
    view.say("starting a Temporal dev server and Valkey")
    with DevServers(TemporalServer(headless=True)) as servers:
        demo = _Demo(servers, folder, view)
        return asyncio.run(demo.run(workflows, seed))


class _Demo:
    def __init__(self, servers: DevServers, folder: Path, view: View) -> None:
        self._servers = servers
        self._folder = folder
        self._view = view
        self._requests = asyncio.Semaphore(_REQUESTS_AT_ONCE)

    async def run(self, workflows: int, seed: int) -> Run:
        address, redis_url = self._servers.temporal.address, self._servers.redis.url
        client = await Client.connect(address)
        store = RedisLockStore(demo_settings(redis_url))
        record, unlocked = Record(), Record()
        try:
            with Crew(self._folder, address, redis_url) as crew:
                crew.start("workflows", Record(), "workflows")
                plain = make_orders(workflows, seed, locked=False)
                await self._run_unlocked(client, crew, unlocked, plain)
                orders = make_orders(workflows, seed, locked=True)
                watch, completed = await self._run_locked(client, crew, store, record, orders)
                self._view.say("comparing the workflows' histories")
                histories = await self._histories(client, orders)
                plain_histories = await self._histories(client, plain)
        finally:
            await store.close()
        return Run(
            locks=LOCKS,
            lease=LEASE,
            orders=[order.id for order in orders],
            completed=completed,
            record=record,
            unlocked=unlocked,
            kill=watch.kill,
            began=watch.began,
            histories=dict(zip((order.id for order in orders), histories, strict=True)),
            unlocked_histories=plain_histories,
        )

    async def _run_unlocked(
        self, client: Client, crew: Crew, record: Record, orders: Sequence[Order]
    ) -> None:
        self._view.say(f"{len(orders)} workflows without locks, to compare with")
        completed: set[str] = set()

        def ended() -> bool:
            crew.read()
            return work.done()

        async with self._executing(client, orders, completed) as work:
            crew.start("unlocked", record, "unlocked")
            await self._until(ended, _patience(orders), "the workflows without locks did not end")
            await work
        crew.read()  # what was noted down since
        if len(completed) < len(orders):
            raise DemoError("workflows failed even without locks")

    async def _run_locked(
        self, client: Client, crew: Crew, store: RedisLockStore, record: Record, orders: Sequence[Order]
    ) -> tuple[Watch, set[str]]:
        self._view.say(f"the same {len(orders)} workflows with locks, on two workers")
        completed: set[str] = set()
        async with self._executing(client, orders, completed) as work:
            for name in WORKERS:
                crew.start(name, record, "locked")
            await self._until(crew.ready, _READY_SECONDS, "the workers did not start")
            watch = Watch(crew, store, record, self._view, total=len(orders))
            # what is not done by then shows in the table
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_patience(orders)):
                    await watch.follow(work)
        return watch, completed

    @contextlib.asynccontextmanager
    async def _executing(
        self, client: Client, orders: Sequence[Order], completed: set[str]
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Execute workflows meanwhile. While their workers start, a line forms that they will work off."""
        work = asyncio.create_task(self._execute(client, orders, completed))
        try:
            yield work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _execute(self, client: Client, orders: Sequence[Order], completed: set[str]) -> None:
        """Start all workflows and wait for them; those that succeed are added to `completed`."""

        async def execute(order: Order) -> None:
            async with self._requests:
                handle = await client.start_workflow(Fulfil.run, order, id=order.id, task_queue="workflows")
            with contextlib.suppress(WorkflowFailureError):
                await handle.result()
                completed.add(order.id)

        async with asyncio.TaskGroup() as group:
            for order in orders:
                group.create_task(execute(order))

    async def _histories(self, client: Client, orders: Sequence[Order]) -> list[tuple[str, ...]]:
        """The event types of each order's workflow."""

        async def fetch(order: Order) -> tuple[str, ...]:
            async with self._requests:
                history = await client.get_workflow_handle(order.id).fetch_history()
            return tuple(EventType.Name(event.event_type) for event in history.events)

        return await asyncio.gather(*map(fetch, orders))

    async def _until(self, condition: Callable[[], object], seconds: float, otherwise: str) -> None:
        give_up = now() + seconds
        while not condition():
            if now() > give_up:
                raise DemoError(f"{otherwise} within {seconds:.0f} s")
            await asyncio.sleep(0.05)


def _patience(orders: Sequence[Order]) -> float:
    return _PATIENCE + _PATIENCE_PER_ORDER * len(orders)
