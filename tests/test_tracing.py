"""What happens to an activity's locks shows up on its span, where OpenTelemetry is in place."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from activities_under_test import CallActivity, in_coroutine
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from servers import command
from stage import Kind, Stage, until
from temporalio.client import Client
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from lock_interceptor import LockInterceptor, LockPlugin

ACTIVITY = "in_coroutine"


class Traces:
    """Spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.interceptor = TracingInterceptor(provider.get_tracer("test"))

    def of_activity(self) -> list[ReadableSpan]:
        """One for each attempt."""
        spans: Sequence[ReadableSpan] = self._exporter.get_finished_spans()
        return [span for span in spans if span.name.startswith("RunActivity:")]

    async def attempts(self, count: int) -> list[list[Event]]:
        """What happened to locks in each attempt, of so many at least."""
        await until(lambda: len(self.of_activity()) >= count, f"{count} attempts")
        # the interceptor adds the error of an attempt that fails
        return [[event for event in span.events if event.name != "exception"] for span in self.of_activity()]


@pytest.fixture
def traces() -> Traces:
    """What is traced in this test."""
    return Traces()


def names(events: list[Event]) -> list[str]:
    """What happened, in order."""
    return [event.name for event in events]


async def test_waiting_and_holding(stage: Stage, kind: Kind, traces: Traces) -> None:
    """The span of an activity of any kind says when it waited, was granted the lock, and gave it back."""
    interceptors = [traces.interceptor, LockInterceptor(stage.settings)]
    async with stage.worker(kind=kind, interceptors=interceptors):
        async with stage.somebody_else():
            handle = await stage.start(kind, stage.play())
            await stage.until_waiting(1)
        token, slot = (await handle.result()).split()
    await interceptors[1].close()
    ((waiting, acquired, released),) = await traces.attempts(1)
    assert names([waiting, acquired, released]) == ["lock.waiting", "lock.acquired", "lock.released"]
    assert waiting.attributes == {"lock": "lock", "place": 1, "held": 1}
    assert acquired.attributes is not None
    assert acquired.attributes["token"] == int(token)
    assert acquired.attributes["slot"] == int(slot)
    assert acquired.attributes["waited"] == pytest.approx(
        (acquired.timestamp - waiting.timestamp) / 1e9, abs=1
    )
    assert released.attributes == {"lock": "lock", "token": int(token)}


async def test_parked(stage: Stage, traces: Traces) -> None:
    """An attempt that ends without its lock says so on its own span, and is no error."""
    interceptors = [traces.interceptor, LockInterceptor(stage.settings)]
    async with stage.worker(in_coroutine, interceptors=interceptors):
        async with stage.somebody_else():
            handle = await stage.start(ACTIVITY, stage.play(), start_to_close=1)
            await stage.failed_attempt(handle, "LockNotAcquired")
        await handle.result()
    await interceptors[1].close()
    first, *_, last = await traces.attempts(2)
    assert names(first) == ["lock.waiting", "lock.parked"]
    assert names(last)[-2:] == ["lock.acquired", "lock.released"]
    assert traces.of_activity()[0].status.is_unset


async def test_lost(stage: Stage, kinds: dict[str, Kind], traces: Traces) -> None:
    """A lock that is lost while the body runs is not called released, and the reason is told."""
    settings = stage.settings.model_copy(update={"lease": timedelta(seconds=2)})
    interceptors = [traces.interceptor, LockInterceptor(settings)]
    async with stage.worker(kind=kinds["thread"], interceptors=interceptors):
        handle = await stage.start(kinds["thread"], stage.play(waits=True, heartbeats=True), heartbeat=20)
        await stage.saw("began1")
        command(stage.redis, "DEL", *stage.keys())
        await stage.saw("stopped1")
        stage.cue()
        await handle.result()
    await interceptors[1].close()
    (acquired, lost), second = await traces.attempts(2)
    assert names([acquired, lost]) == ["lock.acquired", "lock.lost"]
    assert acquired.attributes is not None
    assert lost.attributes == {"lock": "lock", "token": acquired.attributes["token"], "reason": "gone"}
    assert names(second) == ["lock.acquired", "lock.released"]


async def test_plugin_of_a_traced_client(stage: Stage, traces: Traces) -> None:
    """The tracing interceptor of a client is outside of the plugin's, which is all it takes."""
    plugin = LockPlugin(stage.settings)
    client = await Client.connect(stage.temporal.address, interceptors=[traces.interceptor], plugins=[plugin])
    async with Worker(
        client,
        task_queue=stage.task_queue,
        workflows=[CallActivity],
        activities=[in_coroutine],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        await replace(stage, client=client).run(ACTIVITY, stage.play())
    assert names((await traces.attempts(1))[0]) == ["lock.acquired", "lock.released"]


async def test_tracing_inside_of_the_lock(stage: Stage, traces: Traces) -> None:
    """The wrong way round the lock works, and the span, which begins later, says nothing of it."""
    interceptors: list[Any] = [LockInterceptor(stage.settings), traces.interceptor]
    async with stage.worker(in_coroutine, interceptors=interceptors):
        await stage.run(ACTIVITY, stage.play())
    await interceptors[0].close()
    assert await traces.attempts(1) == [[]]


def test_nobody_pays_who_does_not_trace() -> None:
    """Telling a span that is not there needs nothing and loads nothing, though OpenTelemetry is installed."""
    code = (
        "import sys; from lock_interceptor import tracing; tracing.event('lock.lost', lock='lock')\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own interpreter
