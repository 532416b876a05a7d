"""A worker process of the faults around the lock: works until its standard input ends or something ends it.

Its settings come from the environment, as in production. What its activities raise is named in their input.
"""

import asyncio
import contextlib
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import history
from activities_under_test import CallActivity
from process_bodies import ONE, Work, work_in_coroutine
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    Interceptor,
    SharedStateManager,
    UnsandboxedWorkflowRunner,
    Worker,
)

from lock_interceptor import LockInterceptor, needs_lock

WIDE = "größe"
"""A lock's name that not every encoding has."""


class Own(BaseException):
    """A user's own, which no ``except Exception`` catches."""


ERRORS: dict[str, type[BaseException]] = {
    each.__name__: each
    for each in (SystemExit, KeyboardInterrupt, GeneratorExit, Own, asyncio.CancelledError)
}


@dataclass
class Raising:
    """What an activity is to raise, and where."""

    error: str
    where: str = "body"

    def do(self, where: str) -> None:
        """Raise it if this is the place, which may be ``nowhere``."""
        if where == self.where != "nowhere":
            raise ERRORS[self.error]("raised by the test")


def key_that_raises(raising: Raising) -> str:
    """A key function."""
    raising.do("key")
    return "key"


@activity.defn
async def plain_async(raising: Raising) -> str:
    if raising.where == "waiting":
        activity.heartbeat()  # as the locked one does while it waits
    raising.do(raising.where)
    return "done"


@activity.defn
def plain_thread(raising: Raising) -> str:
    raising.do(raising.where)
    return "done"


@activity.defn
def plain_process(raising: Raising) -> str:
    raising.do(raising.where)
    return "done"


@activity.defn
@needs_lock(lock_name="raising", key=key_that_raises)
async def locked_async(raising: Raising) -> str:
    raising.do("body")
    return "done"


@activity.defn
@needs_lock(lock_name="raising", key=key_that_raises)
def locked_thread(raising: Raising) -> str:
    raising.do("body")
    return "done"


@activity.defn
@needs_lock(lock_name="raising", key=key_that_raises)
def locked_process(raising: Raising) -> str:
    raising.do("body")
    return "done"


@activity.defn
async def bystander(work: Work) -> str:
    """Waits for its cue."""
    work.note("began")
    for _ in work.until_cued():
        await asyncio.sleep(0.02)
    return "done"


@activity.defn
@needs_lock(lock_name=WIDE)
async def wide_async(work: Work) -> str:
    return await work_in_coroutine(Work(work.scene, work.who, work.seconds, (WIDE,)))


class HeartbeatRaises(Interceptor):
    """An interceptor of the user's own, further out, whose heartbeat raises for those that ask for it."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Inbound(next)


class _Inbound(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._outbound = _Outbound(outbound)
        super().init(self._outbound)

    async def execute_activity(self, input: Any) -> Any:
        if input.args and isinstance(input.args[0], Raising):
            self._outbound.raising = input.args[0]
        return await super().execute_activity(input)


class _Outbound(ActivityOutboundInterceptor):
    raising: Raising | None = None

    def heartbeat(self, *details: Any) -> None:
        super().heartbeat(*details)
        if self.raising:
            self.raising.do("waiting")


IN_THREADS = (plain_async, plain_thread, locked_async, locked_thread, bystander, wide_async)
IN_PROCESSES = (plain_process, locked_process, bystander)


async def orders() -> str:
    """What the test says: ``exit``, ``_exit``, or nothing when it is time to end."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return (await reader.readline()).decode().strip()


async def main(address: str, task_queue: str, kind: str) -> None:
    """Work until told otherwise, with a pool of threads or, for activities in processes, of those."""
    interceptor = LockInterceptor()
    with contextlib.ExitStack() as stack:
        options: dict[str, Any] = {
            "activities": [*IN_THREADS, ONE["async"], ONE["thread"]],
            "activity_executor": stack.enter_context(ThreadPoolExecutor(10)),
        }
        if kind == "process":
            spawning = multiprocessing.get_context("spawn")
            pollers = stack.enter_context(ThreadPoolExecutor(1))
            manager = SharedStateManager.create_from_multiprocessing(
                stack.enter_context(spawning.Manager()), pollers
            )
            options = {
                "activities": [*IN_PROCESSES, ONE["process"]],
                "activity_executor": stack.enter_context(ProcessPoolExecutor(2, spawning)),
                "shared_state_manager": manager,
                "max_concurrent_activities": 2,
            }
        async with Worker(
            await Client.connect(address),
            task_queue=task_queue,
            workflows=[CallActivity],
            interceptors=[HeartbeatRaises(), interceptor],
            workflow_runner=UnsandboxedWorkflowRunner(),
            graceful_shutdown_timeout=timedelta(seconds=1),
            max_heartbeat_throttle_interval=timedelta(milliseconds=100),
            default_heartbeat_throttle_interval=timedelta(milliseconds=100),
            **options,
        ):
            order = await orders()
            if order == "exit":
                sys.exit(3)
            if order == "_exit":
                os._exit(4)
    await interceptor.close()


if __name__ == "__main__":
    history.install()
    asyncio.run(main(*sys.argv[1:]))
    os._exit(0)  # what nobody could write to standard output is not to be tried again
