"""What Temporal keeps of a failure has no secret, and nothing of an activity's arguments, in it."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import structlog
from certificates import tls_files
from redis_tools import settings_for
from secret_failures import FAILING, REFUSED_URL, Servers, found_in, servers_with_secrets
from stage import PATIENCE, Stage, until
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError

from lock_interceptor import needs_lock

# connections to servers that are made not to answer end with the loop
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ARGUMENT = f"argument{uuid4().hex}"
"""Handed to activities, and to be found nowhere but where Temporal keeps arguments."""
REGIONS = {"north": "N"}


@activity.defn
@needs_lock(lock_name="lock", key=lambda _: "same")
async def hold(text: str) -> str:
    return "held"


@activity.defn
@needs_lock(lock_name="lock", key=lambda text: REGIONS[text])
async def stumble(text: str) -> None:
    """Its key function quotes the argument in its error."""


@activity.defn
@needs_lock(lock_name="lock", key=lambda text: text.encode())
async def misname(text: str) -> None:
    """Its key function returns something else than a string."""


@activity.defn
@needs_lock(lock_name="lock", key=lambda text: text * 100)
async def exaggerate(text: str) -> None:
    """Its key function returns something too long."""


@pytest.fixture(autouse=True)
def _no_leftovers() -> Iterator[None]:
    """Whatever is left is collected here and not while another file's tests run."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers_with_secrets(tls_files(tmp_path_factory.mktemp("tls"))) as servers:
        yield servers


def _logged(records: list[logging.LogRecord], *, ours: bool = False) -> list[str]:
    """What was logged; of `ours` alone, since the SDK's debug messages have whole tasks in them."""
    formatter = logging.Formatter()
    return [
        f"{formatter.format(record)} {record.__dict__}"
        for record in records
        if not (ours and record.name.startswith("temporalio"))
    ]


async def _failures(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """What the server keeps of failures and heartbeats, final or of an attempt, with all payloads."""
    history = await handle.fetch_history()
    events = [event for event in history.events if "FAILED" in EventType.Name(event.event_type)]
    pending = (await handle.describe()).raw_description.pending_activities
    kept = [*events, *(part for each in pending for part in (each.last_failure, each.heartbeat_details))]
    return [message.SerializeToString().decode("utf-8", "replace") for message in kept]


async def _until_failed(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """Wait until the first attempt has failed."""

    async def failed() -> list[str] | None:
        failures = await _failures(handle)
        return failures if any("Lock" in text for text in failures) else None

    found: list[str] = await until(failed, "a failed attempt", 30)
    return found


async def test_no_history_has_a_secret(
    stage: Stage, servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    """Failures that the server keeps, final or not, and all that is logged meanwhile, have no secret."""
    caplog.set_level(logging.DEBUG)

    few_at_once = asyncio.Semaphore(4)

    async def fail(name: str) -> list[str]:
        async with few_at_once:
            return await fail_with(FAILING[name](servers))

    async def fail_with(values: dict[str, Any]) -> list[str]:
        settings = settings_for(values.pop("url", None), lease=2, max_wait=0, retry_interval=0.1, **values)
        failing = replace(stage, settings=settings, task_queue=f"test-{uuid4()}")
        async with failing.worker(hold):
            handle = await failing.start("hold", ARGUMENT)
            failures = await _until_failed(handle)
            with contextlib.suppress(RPCError):  # most have come to their end
                await handle.terminate()
        return failures

    with structlog.testing.capture_logs() as events:
        kept = await asyncio.gather(*map(fail, sorted(set(FAILING) - set(REFUSED_URL))))
    shown = [*(text for failures in kept for text in failures), *map(str, events)]
    assert found_in([*shown, *_logged(caplog.records)]) == []
    assert not [text for text in (*shown, *_logged(caplog.records, ours=True)) if ARGUMENT in text]


@pytest.mark.parametrize("name", ["stumble", "misname", "exaggerate"])
async def test_a_failing_key_function_does_not_show_the_arguments(
    stage: Stage, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What a key function trips over is in no failure and in no log."""
    caplog.set_level(logging.DEBUG)
    with structlog.testing.capture_logs() as events:
        async with stage.worker(stumble, misname, exaggerate):
            handle = await stage.start(name, ARGUMENT)
            with pytest.raises(WorkflowFailureError):
                await handle.result()
    failures = await _failures(handle)
    assert any(f"on activity {name} r" in text for text in failures)
    shown = [*failures, *map(str, events), *_logged(caplog.records, ours=True)]
    assert not [text for text in shown if ARGUMENT in text]


async def test_redis_and_logs_know_the_key_and_no_argument(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """While an activity waits, comes back and holds, only what its key function returns is told of it."""
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    with structlog.testing.capture_logs() as events:
        impatient = stage.with_settings(max_wait=timedelta(0))
        async with stage.somebody_else("lock", "same"), impatient.worker(hold):
            handle = await stage.start("hold", ARGUMENT, heartbeat=5)
            shown += await _until_failed(handle)
            shown += [*stage.keys(), *stage.members(), str(await stage.state("lock", "same"))]
        async with stage.worker(hold):
            assert await asyncio.wait_for(handle.result(), PATIENCE) == "held"
    assert any("lock[same]: 1 of 1 held" in text for text in shown)
    assert {"lock.parked", "lock.acquired", "lock.released"} <= {event["event"] for event in events}
    shown += [*map(str, events), *_logged(caplog.records, ours=True)]
    assert not [text for text in shown if ARGUMENT in text]
