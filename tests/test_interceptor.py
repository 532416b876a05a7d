"""Which activities an interceptor locks, and that it acts once however often it is given."""

import functools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from stage import Kind, Stage
from structlog.testing import capture_logs
from temporalio import activity
from temporalio.client import Client
from temporalio.client import Interceptor as ClientInterceptor
from temporalio.common import RawValue
from temporalio.worker import Worker

from lock_interceptor import LockInterceptor, LockPlugin, current_lease, needs_lock


def held() -> str:
    """The lock under which this runs."""
    return current_lease().label


class Warehouse:
    """Activities that are methods."""

    @activity.defn
    @needs_lock(lock_name="method")
    async def method(self) -> str:
        return held()

    @activity.defn
    @needs_lock(lock_name="of self", key=lambda text: text)
    def in_thread(self, text: str) -> str:
        return f"{text}: {held()}"

    @staticmethod
    @activity.defn
    @needs_lock(lock_name="static method")
    async def static() -> str:
        return held()

    @needs_lock(lock_name="outside static method")
    @staticmethod
    @activity.defn
    async def marked_outside() -> str:
        return held()

    @classmethod
    @activity.defn
    @needs_lock(lock_name="class method")
    async def of_class(cls) -> str:
        return held()


@needs_lock(lock_name="class")
@activity.defn(name="marked_class")
class Marked:
    """An activity with its state, marked as a class."""

    async def __call__(self) -> str:
        return held()


@activity.defn(name="marked_call")
class MarkedInside:
    """The same, marked inside."""

    @needs_lock(lock_name="call")
    async def __call__(self) -> str:
        return held()


@activity.defn
@needs_lock
async def bare() -> str:
    return held()


@needs_lock(lock_name="outside")
@activity.defn
async def marked_above() -> str:
    return held()


@needs_lock(lock_name="partial")
async def with_argument(text: str) -> str:
    return f"{text}{held()}"


partial = activity.defn(name="partial")(functools.partial(with_argument, "of "))


def logged(function: Any) -> Any:
    """A decorator as users write them."""

    @functools.wraps(function)
    async def wrapper(*args: Any) -> Any:
        return await function(*args)

    return wrapper


@activity.defn
@logged
@needs_lock(lock_name="wrapped")
async def wrapped() -> str:
    return held()


@activity.defn(dynamic=True)
@needs_lock(key=lambda args: activity.payload_converter().from_payload(args[0].payload, str))
async def dynamic(args: Sequence[RawValue]) -> str:
    return held()


@pytest.mark.parametrize(
    ("function", "call", "lock"),
    [
        (bare, ["bare"], "bare"),
        (marked_above, ["marked_above"], "outside"),
        (wrapped, ["wrapped"], "wrapped"),
        (Warehouse().method, ["method"], "method"),
        (Warehouse().in_thread, ["in_thread", "a"], "a: of self[a]"),
        (Warehouse.static, ["static"], "static method"),
        (Warehouse.marked_outside, ["marked_outside"], "outside static method"),
        (Warehouse.of_class, ["of_class"], "class method"),
        (Marked(), ["marked_class"], "class"),
        (MarkedInside(), ["marked_call"], "call"),
        (partial, ["partial"], "of partial"),
        (dynamic, ["whatever", "eu", "more"], "whatever[eu]"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_is_locked(
    stage: Stage, kinds: dict[str, Kind], function: Any, call: list[str], lock: str
) -> None:
    """Whatever can be registered as an activity is locked where it is marked."""
    async with stage.worker(function, activity_executor=kinds["thread"].executor):
        assert await stage.run(*call) == lock
    assert len(stage.keys()) == 1


async def test_standalone_activity(stage: Stage, kind: Kind) -> None:
    """An activity that a client starts without a workflow is locked, and waits like any other."""
    async with stage.worker(kind=kind):
        async with stage.somebody_else():
            handle = await stage.client.start_activity(
                kind.activity,
                stage.play(),
                id=f"standalone-{uuid4()}",
                task_queue=stage.task_queue,
                schedule_to_close_timeout=timedelta(minutes=1),
            )
            (waiter,) = (await stage.until_waiting(1)).waiters
            assert (waiter.party.workflow, waiter.party.activity) == ("", kind.activity)
        await handle.result()
    await stage.saw("began1")


async def test_unmarked_activity(stage: Stage) -> None:
    """An activity without a mark is left alone, and may even be local."""

    @activity.defn
    async def unmarked() -> str:
        return "ran"

    async with stage.worker(unmarked):
        assert await stage.run("unmarked", local=True) == "ran"
    assert not stage.keys()


class ForClientToo(LockInterceptor, ClientInterceptor):
    """What a client takes as an interceptor, and hands on to its workers."""


@asynccontextmanager
async def given_twice(stage: Stage, how: str) -> AsyncIterator[None]:
    """A worker that is given locks in two ways."""
    interceptor, other = LockInterceptor(stage.settings), ForClientToo(stage.settings)
    plugin = LockPlugin(stage.settings)
    of_client = {
        "client and worker": {"interceptors": [other]},
        "plugin and interceptor": {"plugins": [plugin]},
    }
    client = await Client.connect(stage.temporal.address, **of_client.get(how, {}))
    of_worker = [interceptor, interceptor] if how == "twice in the list" else [interceptor]
    try:
        async with stage.worker(bare, client=client, interceptors=of_worker):
            yield
    finally:
        await interceptor.close()
        await other.close()


@pytest.mark.parametrize("how", ["twice in the list", "client and worker", "plugin and interceptor"])
async def test_given_twice(stage: Stage, how: str) -> None:
    """An interceptor that is there twice takes the lock once; it would wait for itself otherwise."""
    async with given_twice(stage, how):
        with capture_logs() as logs:
            assert await stage.run("bare", schedule_to_close=10) == "bare"
    assert [entry["event"] for entry in logs].count("lock.acquired") == 1


async def test_worker_inside_an_activity(stage: Stage) -> None:
    """The activities of a worker that an activity starts are locked like those of any other."""

    @activity.defn
    @needs_lock(lock_name="outer")
    async def outer() -> str:
        inner = LockInterceptor(stage.settings)
        async with Worker(
            stage.client, task_queue=f"inner-{stage.task_queue}", activities=[bare], interceptors=[inner]
        ):
            held = await stage.client.execute_activity(
                bare,
                id=f"inner-{uuid4()}",
                task_queue=f"inner-{stage.task_queue}",
                schedule_to_close_timeout=timedelta(minutes=1),
            )
        await inner.close()
        return held

    async with stage.worker(outer):
        assert await stage.run("outer") == "bare"
