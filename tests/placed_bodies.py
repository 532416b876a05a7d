"""Activities of all kinds that note when their bodies ran, and wait for a cue if told to.

Process pools import it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from load import notes
from load_worker import note
from stage import Kind, Stage, until
from temporalio import activity
from temporalio.client import ActivityHandle, Client
from temporalio.worker import Worker

from lock_interceptor import LockInterceptor, LockPlugin, needs_lock

STEP = 0.005


def begin(scene: str, name: str) -> float:
    """Leave a note that a body has begun."""
    note(scene, "began", name, activity.info().attempt)
    return time.monotonic()


def is_cued(scene: str, cue: str) -> bool:
    return not cue or Path(scene, cue).exists()


def in_coroutine(name: str) -> Callable[..., Any]:
    """An async activity of this name."""

    @activity.defn(name=name)
    async def body(scene: str, name: str, cue: str = "") -> int:
        began = begin(scene, name)
        await asyncio.sleep(STEP)
        await until(lambda: is_cued(scene, cue), f"the cue {cue}", 60)
        note(scene, "done", name, began, time.monotonic())
        return activity.info().attempt

    return body


def _in_sync_code(scene: str, name: str, cue: str) -> int:
    began = begin(scene, name)
    time.sleep(STEP)
    while not is_cued(scene, cue):
        time.sleep(STEP)
    note(scene, "done", name, began, time.monotonic())
    return activity.info().attempt


plain = in_coroutine("plain")
locked = needs_lock(lock_name="lock")(in_coroutine("locked"))
locked_thrice = needs_lock(lock_name="lock", max_locks=3)(in_coroutine("locked_thrice"))
locked_twice = needs_lock(lock_name="other")(needs_lock(lock_name="lock")(in_coroutine("locked_twice")))
locked_or_fail = needs_lock(lock_name="lock", on_conflict="fail")(in_coroutine("locked_or_fail"))


@activity.defn
def plain_sync(scene: str, name: str, cue: str = "") -> int:
    """In the executor, without a lock."""
    return _in_sync_code(scene, name, cue)


@activity.defn
@needs_lock(lock_name="lock")
def locked_sync(scene: str, name: str, cue: str = "") -> int:
    """In the executor, with a lock."""
    return _in_sync_code(scene, name, cue)


@activity.defn
@needs_lock(lock_name="lock", on_conflict="fail")
def locked_or_fail_sync(scene: str, name: str, cue: str = "") -> int:
    """In the executor, with a lock that must be free."""
    return _in_sync_code(scene, name, cue)


ASYNC = (plain, locked, locked_thrice, locked_twice, locked_or_fail)
SYNC = (plain_sync, locked_sync, locked_or_fail_sync)


@contextlib.asynccontextmanager
async def a_worker(
    stage: Stage, way: str, queue: str, *, kind: Kind | None = None, **options: Any
) -> AsyncIterator[Worker]:
    """A worker without workflows, with a plugin or a plain interceptor; sync bodies run as `kind` says."""
    client = await Client.connect(
        stage.temporal.address, plugins=[LockPlugin(stage.settings)] if way == "plugin" else []
    )
    interceptor = LockInterceptor(stage.settings)
    if kind is not None:
        options.setdefault("activity_executor", kind.executor)
        options["shared_state_manager"] = kind.manager
    try:
        async with Worker(
            client,
            task_queue=queue,
            activities=[*ASYNC, *(SYNC if kind else ())],
            interceptors=[] if way == "plugin" else [interceptor],
            graceful_shutdown_timeout=timedelta(seconds=5),
            **options,
        ) as worker:
            yield worker
    finally:
        await interceptor.close()


async def call(
    stage: Stage, queue: str, what: str, name: str, cue: str = "", *, heartbeat: float | None = None
) -> ActivityHandle[Any]:
    """Start an activity without a workflow."""
    return await stage.client.start_activity(
        what,
        args=[str(stage.scene), name, cue],
        id=f"{name}-{uuid4()}",
        task_queue=queue,
        schedule_to_close_timeout=timedelta(seconds=60),
        heartbeat_timeout=timedelta(seconds=heartbeat) if heartbeat else None,
    )


def begun(stage: Stage) -> list[str]:
    """Whose bodies have begun, in order."""
    return [name for name, _ in notes(stage.scene, "began")]


async def until_begun(stage: Stage, *names: str) -> None:
    """Wait until these bodies have begun."""
    await until(lambda: set(names) <= set(begun(stage)), f"{names} begun, there are {begun(stage)}", 20)
