"""`LockedActivityEnvironment`: activities under their locks, without a server.

Temporal's ``ActivityEnvironment`` has no interceptors. This puts the real `LockInterceptor` around it.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from temporalio import activity
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, ExecuteActivityInput

# attributes of it load the client of Redis, which is time enough to do when they are needed
import lock_interceptor
from lock_interceptor.room import MAX_WAITERS, WaitingRoom
from lock_interceptor.store import LockStore

if TYPE_CHECKING:
    from lock_interceptor import LockInterceptor, LockSettings

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def quick_settings(**changes: Any) -> LockSettings:
    """Settings under which tests need not wait: leases of 1 s, a poll every 0.1 s, locking enabled.

    Args:
        changes: fields of `LockSettings` to set differently.

    Raises:
        LockConfigurationError: a value, also one in the environment, is invalid.
    """
    quick = {
        "application_name": "test",
        "lease": timedelta(seconds=1),
        "retry_interval": timedelta(seconds=0.1),
        "disabled": False,
    }
    return lock_interceptor.LockSettings(**quick | changes)


class LockedActivityEnvironment:
    """Runs activities under their locks as a worker does, without Temporal and, if you like, Redis.

        async with LockedActivityEnvironment(InMemoryLockStore()) as environment:
            await environment.run(pick, "north", 1)

    Each `run` is one attempt of a new activity, in the ``ActivityEnvironment`` of Temporal: it waits for its
    locks, has `current_lease`, heartbeats, is stopped when its lock is lost, and fails with what the
    workflow would be told. Several may run at once. Nothing is retried: a worker's next attempt is another
    test. Synchronous activities run in threads.

    Attributes:
        info: what ``activity.info()`` tells; ``activity_type`` and ``activity_id`` are each run's own. The
            timeouts are one minute unless you set this, with ``dataclasses.replace``.
        on_heartbeat: called with the details of each heartbeat, those while waiting included.
        interceptor: the `LockInterceptor` in use.

    Args:
        store: where the locks are kept.
        settings: by default `quick_settings`. The wait for a lock ends, as in a worker, after
            ``LOCK_MAX_WAIT_SECONDS`` or a quarter of ``start_to_close_timeout``, whichever is less.
        client: what ``activity.client()`` gives.

    Raises:
        LockConfigurationError: the environment variables hold invalid settings.
    """

    def __init__(
        self, store: LockStore, settings: LockSettings | None = None, *, client: Client | None = None
    ) -> None:
        self.info = replace(
            ActivityEnvironment.default_info(),
            schedule_to_close_timeout=timedelta(minutes=1),
            start_to_close_timeout=timedelta(minutes=1),
        )
        self.on_heartbeat: Callable[..., None] = lambda *_: None
        self.interceptor: LockInterceptor = lock_interceptor.LockInterceptor(
            quick_settings() if settings is None else settings, store=store
        )
        # there is no worker whose permits could be counted
        self.interceptor.sit_in(WaitingRoom(self.interceptor.settings.max_waiters or MAX_WAITERS))
        self._client = client
        self._ids = itertools.count(1)
        self._threads = ThreadPoolExecutor(thread_name_prefix="locked_activity")

    async def __aenter__(self) -> Self:
        """Nothing is started before the first run."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def close(self) -> None:
        """Stop what keeps the leases alive, and close the store's connections of this loop."""
        await self.interceptor.close()
        self._threads.shutdown(wait=False)

    @overload
    def run(
        self,
        fn: Callable[Parameters, Awaitable[Result]],
        *args: Parameters.args,
        **no_keywords: Parameters.kwargs,
    ) -> Coroutine[Any, Any, Result]: ...
    @overload
    def run(
        self, fn: Callable[Parameters, Result], *args: Parameters.args, **no_keywords: Parameters.kwargs
    ) -> Coroutine[Any, Any, Result]: ...
    async def run(self, fn: Callable[..., Any], *args: Any, **no_keywords: Any) -> Any:
        """Run one attempt of an activity, and return its result.

        Args:
            fn: the activity, tagged with `needs_lock` or not.
            args: its arguments; Temporal knows positional ones only.
            no_keywords: none.

        Raises:
            ApplicationError: what the lock made of the attempt; its ``type`` is the name of a `LockError`,
                such as ``"LockBusy"``.
            TypeError: there are arguments by keyword.
            BaseException: whatever the activity raises.
        """
        if no_keywords:
            raise TypeError(
                f"Temporal passes arguments by position, not by keyword: {', '.join(no_keywords)}"
            )
        environment = ActivityEnvironment(self._client)
        environment.info = replace(self.info, activity_type=_type(fn), activity_id=str(next(self._ids)))
        chain = self.interceptor.intercept_activity(_Body(environment))
        chain.init(_Outside(environment, self.on_heartbeat))
        call = ExecuteActivityInput(fn, args, None if _is_async(fn) else self._threads, headers={})
        outcome, leaving = await environment.run(_outcome, chain, call)
        if leaving is not None:
            raise leaving
        return outcome


async def _outcome(
    chain: ActivityInboundInterceptor, call: ExecuteActivityInput
) -> tuple[Any, BaseException | None]:
    """What an attempt returns or, if it wants to end the process, its error.

    Raised in the task in which this runs, that would end the event loop. A worker lives on with it.
    """
    try:
        return await chain.execute_activity(call), None
    except (SystemExit, KeyboardInterrupt) as error:
        return None, error


class _Body(ActivityInboundInterceptor):
    """The inner end of the chain: runs the function itself."""

    def __init__(self, environment: ActivityEnvironment) -> None:
        self._environment = environment

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        # activity.heartbeat() goes the way outwards, past all interceptors
        self._environment.on_heartbeat = outbound.heartbeat

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if input.executor is None:
            return await input.fn(*input.args)
        run = contextvars.copy_context().run
        return await asyncio.get_running_loop().run_in_executor(input.executor, run, input.fn, *input.args)


class _Outside(ActivityOutboundInterceptor):
    """The outer end of the chain, where a worker would talk to the server."""

    def __init__(self, environment: ActivityEnvironment, on_heartbeat: Callable[..., None]) -> None:
        self._environment = environment
        self._on_heartbeat = on_heartbeat

    def info(self) -> activity.Info:
        return self._environment.info

    def heartbeat(self, *details: Any) -> None:
        self._on_heartbeat(*details)


def _is_async(fn: Any) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


def _type(fn: Any) -> str:
    """The activity type under which a worker registers it."""
    definition = getattr(fn, "__temporal_activity_definition", None)
    name = getattr(definition, "name", None) or getattr(fn, "__name__", None)
    return str(name or type(fn).__name__)
