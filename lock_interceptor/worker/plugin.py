"""`LockPlugin`: puts a `LockInterceptor` into every worker of a client. Assembly only."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio.plugin import SimplePlugin
from temporalio.worker import ReplayerConfig, Worker, WorkerConfig, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from lock_interceptor import telemetry
from lock_interceptor.errors import LockConfigurationError, LockStoreUnavailable
from lock_interceptor.marker import read_specs
from lock_interceptor.settings import LockSettings
from lock_interceptor.store import LockStore
from lock_interceptor.worker.interceptor import LockInterceptor
from lock_interceptor.worker.slots import give_waiters_permits
from lock_interceptor.worker.workflow_check import check_workflows

PASSED_THROUGH = ("lock_interceptor", "redis", "structlog", "pydantic", "pydantic_settings")
"""Workflow files import activity modules: without this the sandbox imports these again for each workflow."""

HEARTBEATS_EVERY = timedelta(seconds=1.25)
"""How long the SDK holds heartbeats back at most: a quarter of 5 s, since attempts heartbeat that often."""
SDK_HEARTBEATS_EVERY = timedelta(seconds=60)
"""What a worker has whose user did not say."""


class LockPlugin(SimplePlugin):
    """Locks for all workers of a client: ``Client.connect(..., plugins=[LockPlugin()])``.

    Does what `LockInterceptor` does, refuses tagged workflows, keeps the sandbox from importing this package
    anew for each workflow, checks the store when a worker starts, and closes its connections with the last
    one. Give it to the client or to a ``Worker``, not to both.

    Waiting activities have permits of their own, beside the worker's ``max_concurrent_activities``. No more
    bodies than that run at once, and a lock is asked for only while there is a place for the body, in the
    worker and in its executor. With a tuner of your own waiters occupy its permits, 25 at most.

    A waiting activity hears of its cancellation, pause, reset or the end of its workflow as the answer to a
    heartbeat, and the SDK holds those back for up to 80 % of the heartbeat timeout. So a worker with locked
    activities gets a ``max_heartbeat_throttle_interval`` of 1.25 s, unless it has one other than the SDK's
    60 s, and they hear of it within 2 s if their heartbeat timeout is 5 s or less. The price: what any
    activity of that worker heartbeats reaches the server up to every 1.25 s. Where that is too often, as
    where each request costs money, give the worker an interval of your own.
    """

    def __init__(self, settings: LockSettings | None = None, *, store: LockStore | None = None) -> None:
        """Create a plugin; the arguments are those of `LockInterceptor`.

        Raises:
            LockConfigurationError: the environment holds invalid settings.
        """
        self.interceptor = _Origin(settings, store=store)
        self._running = 0
        super().__init__("lock_interceptor.LockPlugin", workflow_runner=_pass_through)

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """See base class.

        Raises:
            LockConfigurationError: a workflow is tagged with `needs_lock`.
        """
        check_workflows(config.get("workflows", ()))
        config = super().configure_worker(config)
        _hasten_heartbeats(config)
        room, places = give_waiters_permits(config, self.interceptor.settings.max_waiters)
        own = self.interceptor.for_worker(config, room, places)
        config["interceptors"] = [*config.get("interceptors", ()), own]
        return config

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """See base class.

        Raises:
            LockConfigurationError: a workflow is tagged with `needs_lock`.
        """
        check_workflows(config.get("workflows", ()))
        return super().configure_replayer(config)

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Run a worker: a mistake in the settings stops it at the start, an outage does not.

        Raises:
            LockConfigurationError: the store refuses: wrong password, missing right, TLS mismatch.
        """
        self._running += 1
        try:
            await self._check(worker, next)
            await super().run_worker(worker, next)
        finally:
            self._running -= 1
            if not self._running:
                await self._close()

    async def _close(self) -> None:
        """Close the connections in any case, which takes bounded time.

        Before 1.35 the SDK cancels what a plugin does after the worker's end, and, should that cancellation
        come out, whatever the user does after ``async with worker``.
        """
        closing = asyncio.ensure_future(self.interceptor.close())
        while not closing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(closing)

    async def _check(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        try:
            await self.interceptor.check()
        except LockStoreUnavailable as error:
            telemetry.store_unavailable_at_start(error)
        except LockConfigurationError as error:
            # only a worker that runs can be shut down, and one that is not would go on in the background
            with self.interceptor.refusing(error):
                await asyncio.wait(
                    [asyncio.ensure_future(each) for each in (next(worker), worker.shutdown())]
                )
            raise


class _Origin(LockInterceptor):
    """What the interceptors of all workers are made from. It serves none itself, so it announces nothing."""

    def _announce(self) -> None:
        pass


def _hasten_heartbeats(config: WorkerConfig) -> None:
    """Let the waiting activities of a worker hear of their end soon."""
    untouched = config.get("max_heartbeat_throttle_interval", SDK_HEARTBEATS_EVERY) == SDK_HEARTBEATS_EVERY
    if untouched and any(read_specs(function) for function in config.get("activities", ())):
        config["max_heartbeat_throttle_interval"] = HEARTBEATS_EVERY


def _pass_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    runner = runner or SandboxedWorkflowRunner()
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    restrictions = runner.restrictions.with_passthrough_modules(*PASSED_THROUGH)
    return dataclasses.replace(runner, restrictions=restrictions)
