"""One test's own application on the shared servers: its locks, workers and workflows."""

import asyncio
import contextlib
import inspect
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import activities_under_test as under_test
from activities_under_test import Call, CallActivity, Play
from servers import command, info
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import SharedStateManager, UnsandboxedWorkflowRunner, Worker

from lock_interceptor import LockInterceptor, LockSettings, RedisLockStore
from lock_interceptor.dev import RedisServer, TemporalServer
from lock_interceptor.store import Claim, Granted, LockId, LockState, Party, Queueing, Waiting

PATIENCE = 15.0


async def until(condition: Callable[[], Any], what: str, timeout: float = PATIENCE) -> Any:
    """Return the first true value of `condition`, which may be a coroutine function."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout} s: {what}")
        await asyncio.sleep(0.01)


@dataclass(frozen=True)
class Kind:
    """How a worker runs an activity."""

    name: str
    function: Callable[..., Any]
    executor: Executor
    manager: SharedStateManager | None = None

    @property
    def activity(self) -> str:
        """The activity's type."""
        return self.function.__name__


@contextlib.contextmanager
def all_kinds() -> Iterator[dict[str, Kind]]:
    """The three kinds, with their executors."""
    # spawn: what has threads must not be forked
    spawning = multiprocessing.get_context("spawn")
    with (
        spawning.Manager() as manager,
        ThreadPoolExecutor(1) as poller,
        ThreadPoolExecutor(16) as threads,
        ProcessPoolExecutor(2, spawning) as processes,
    ):
        shared = SharedStateManager.create_from_multiprocessing(manager, poller)
        kinds = [
            Kind("async", under_test.in_coroutine, threads),
            Kind("thread", under_test.in_thread, threads),
            Kind("process", under_test.in_process, processes, shared),
        ]
        yield {kind.name: kind for kind in kinds}


@dataclass(frozen=True)
class Stage:
    """One test's application. Its scene is the directory of the bodies' notes and cues."""

    temporal: TemporalServer
    redis: RedisServer
    client: Client
    task_queue: str
    scene: Path
    settings: LockSettings
    store: RedisLockStore

    def with_settings(self, **changes: Any) -> "Stage":
        """The same stage with other settings for its workers."""
        return replace(self, settings=self.settings.model_copy(update=changes))

    @contextlib.asynccontextmanager
    async def worker(
        self, *activities: Any, kind: Kind | None = None, interceptors: Any = None, **options: Any
    ) -> AsyncIterator[Worker]:
        """A worker on a connection of its own; several may serve the stage's task queue."""
        own = LockInterceptor(self.settings)
        options.setdefault("graceful_shutdown_timeout", timedelta(seconds=5))
        # cancels arrive with the answers to heartbeats, so these are not to be held back for long
        options.setdefault("max_heartbeat_throttle_interval", timedelta(milliseconds=100))
        options.setdefault("default_heartbeat_throttle_interval", timedelta(milliseconds=100))
        if kind is not None:
            activities = (*activities, kind.function)
            options.setdefault("activity_executor", kind.executor)
            options.setdefault("shared_state_manager", kind.manager)
        client = options.pop("client", None) or await Client.connect(self.temporal.address)
        options.setdefault("workflows", [CallActivity])
        options.setdefault("workflow_runner", UnsandboxedWorkflowRunner())
        try:
            async with Worker(
                client,
                task_queue=self.task_queue,
                activities=activities,
                interceptors=[own] if interceptors is None else interceptors,
                **options,
            ) as worker:
                yield worker
        finally:
            await own.close()

    async def start(self, kind: Kind | str, *args: Any, **how: Any) -> WorkflowHandle[Any, Any]:
        """Start a workflow that calls the activity; a run timeout may be given in `how`."""
        run_timeout = how.pop("run_timeout", None)
        call = Call(kind if isinstance(kind, str) else kind.activity, list(args), **how)
        return await self.client.start_workflow(
            CallActivity.run,
            call,
            id=f"wf-{uuid4()}",
            task_queue=self.task_queue,
            run_timeout=run_timeout,
        )

    async def run(self, kind: Kind | str, *args: Any, **how: Any) -> Any:
        """Run a workflow that calls the activity, and return its result."""
        return await asyncio.wait_for((await self.start(kind, *args, **how)).result(), PATIENCE * 2)

    def play(self, **what: Any) -> Play:
        """A body's instructions."""
        return Play(str(self.scene), **what)

    async def saw(self, note: str) -> str:
        """Wait for a body's note."""
        path = self.scene / note
        await until(path.exists, f"the note {note}")
        return path.read_text()

    def cue(self, name: str = "go") -> None:
        """Let a body go on."""
        (self.scene / name).touch()

    def lock(self, name: str = "lock", key: str | None = None) -> LockId:
        """A lock of this application."""
        return LockId(self.settings.application_name, name, key)

    async def state(self, name: str = "lock", key: str | None = None) -> LockState:
        """What is known of a lock."""
        return await self.store.inspect(self.lock(name, key))

    async def until_waiting(self, count: int, name: str = "lock", *, present: bool = True) -> LockState:
        """Wait until so many wait, all of them in a worker or, if not `present`, parked."""

        async def they_wait() -> LockState | None:
            state = await self.state(name)
            alike = all(waiter.present == present for waiter in state.waiters)
            return state if state.waiting == len(state.waiters) == count and alike else None

        state: LockState = await until(they_wait, f"{count} waiting for {name}")
        return state

    @contextlib.asynccontextmanager
    async def somebody_else(
        self, name: str = "lock", key: str | None = None, *, limit: int = 1, lease: float = 30
    ) -> AsyncIterator[Claim]:
        """Holds the lock while entered."""
        claim = self._claim(name, key, limit)
        assert isinstance(await self.store.acquire(claim, lease=timedelta(seconds=lease)), Granted)
        try:
            yield claim
        finally:
            await self.store.release(claim)

    @contextlib.asynccontextmanager
    async def somebody_in_line(self, name: str = "lock") -> AsyncIterator[Claim]:
        """Is in line for a lock that is held, and so before all who come later."""
        claim = self._claim(name, None, 1)
        queueing = Queueing(presence=timedelta(minutes=1), keep=timedelta(minutes=1))
        assert isinstance(
            await self.store.acquire(claim, lease=timedelta(seconds=30), queueing=queueing), Waiting
        )
        try:
            yield claim
        finally:
            await self.store.release(claim)

    def _claim(self, name: str, key: str | None, limit: int) -> Claim:
        party = Party(workflow="somebody-else", activity="guarding", activity_id="7")
        lock, owner, waiter = self.lock(name, key), uuid4().hex, uuid4().hex
        return Claim(lock=lock, owner=owner, waiter=waiter, limit=limit, party=party)

    async def pending(self, handle: WorkflowHandle[Any, Any]) -> PendingActivityInfo | None:
        """The workflow's activity as Temporal shows it while it is pending."""
        pending = (await handle.describe()).raw_description.pending_activities
        return pending[0] if pending else None

    async def failed_attempt(self, handle: WorkflowHandle[Any, Any], type: str) -> PendingActivityInfo:
        """Wait until an attempt of the workflow's activity has ended with an error of this type."""

        async def failed() -> PendingActivityInfo | None:
            info = await self.pending(handle)
            if info is None or info.last_failure.application_failure_info.type != type:
                return None
            return info

        info: PendingActivityInfo = await until(failed, f"an attempt that ended with {type}")
        return info

    async def events(self, handle: WorkflowHandle[Any, Any]) -> list[str]:
        """The types of the workflow's history events."""
        prefix = "EVENT_TYPE_"
        history = await handle.fetch_history()
        return [EventType.Name(event.event_type).removeprefix(prefix) for event in history.events]

    def keys(self) -> list[str]:
        """The keys of this application's locks."""
        pattern = f"*{{{quote(self.settings.application_name)}:*"
        found: list[str] = command(self.redis, "KEYS", pattern)
        return found

    def members(self) -> list[str]:
        """What stands in this application's locks besides bookkeeping: holders, waiters, who they are."""
        everything = [member for key in self.keys() for member in command(self.redis, "ZRANGE", key, 0, -1)]
        return [member for member in everything if member[0] not in "#@"]

    def requests(self) -> int:
        """How many scripts the server has run, for anybody."""
        statistics = info(self.redis, "commandstats")
        calls = [statistics.get(f"cmdstat_{name}", "calls=0,").split(",")[0] for name in ("evalsha", "eval")]
        return sum(int(call.removeprefix("calls=")) for call in calls)

    def forget(self) -> None:
        """Delete the locks, for a test that ends an activity behind the back of its worker.

        Its place would be kept until its time is over, in no one's way.
        """
        command(self.redis, "DEL", *self.keys())

    async def until_empty(self) -> None:
        """Wait until nobody holds or waits, and only bookkeeping is left."""
        await until(lambda: not self.members(), f"empty locks, there is {self.members()}")
