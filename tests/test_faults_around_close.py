"""The fault matrix around the lock: one of two real workers ends that share an interceptor or a plugin."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import history
import pytest
from figures import measured
from history import Expectations
from process_scene import SLACK, told_within
from stage import Kind, Stage, until
from temporalio.client import Client

from lock_interceptor import LockInterceptor, LockPlugin

LEASE = 1.5
MEANS = ("plugin", "interceptor")


@contextlib.asynccontextmanager
async def two_workers(stage: Stage, kind: Kind, means: str) -> AsyncIterator[contextlib.AsyncExitStack]:
    """The stage's worker, and one beside it; yields what ends the other one."""
    elsewhere = replace(stage, task_queue=f"other-{stage.task_queue}")
    shared, plugin = LockInterceptor(stage.settings), LockPlugin(stage.settings)
    given = {"plugins": [plugin]} if means == "plugin" else {"interceptors": [shared]}
    client = await Client.connect(stage.temporal.address, **given)
    async with contextlib.AsyncExitStack() as other:
        if means == "interceptor":
            other.push_async_callback(shared.close)  # as users do when they think that they are done
        await other.enter_async_context(elsewhere.worker(kind=kind, interceptors=[], client=client))
        async with stage.worker(kind=kind, interceptors=[], client=client):
            yield other
    await shared.close()


@pytest.mark.parametrize("means", MEANS)
async def test_the_other_worker_ends(means: str, stage: Stage, kind: Kind, tmp_path: Path) -> None:
    """A body keeps its lock when the other worker ends, and all that it shared is closed."""
    row = f"the other worker ends, {means}, {kind.name}"
    stage = stage.with_settings(lease=timedelta(seconds=LEASE))
    with history.recording(tmp_path / "history", stage.redis) as run:
        async with two_workers(stage, kind, means) as other:
            play = stage.play(waits=True, heartbeats=kind.name == "thread", asks_lease=kind.name == "process")
            handle = await stage.start(kind, play, heartbeat=30)
            await stage.saw("began1")
            with run.fault(row):
                await asyncio.wait_for(other.aclose(), 30)

            def renewals() -> int:
                return sum(note.what == "extend" for note in run.notes())

            before = renewals()
            stopped = [stage.scene / f"{how}1" for how in ("cancelled", "stopped")]
            await until(
                lambda: renewals() >= before + 5 or any(each.exists() for each in stopped),
                f"{row}: renewals for more than a lease, there were {renewals() - before}",
            )
            assert not any(each.exists() for each in stopped), f"{row}: its body was told of a loss"
            stage.cue()
            assert await asyncio.wait_for(handle.result(), 20)
        assert not (stage.scene / "began2").exists(), f"{row}: its body ran twice"
        report = run.check(Expectations(poll=0.6, slack=SLACK, stop_margin=told_within()))
    measured(f"{row}: grants {report.counts['grants']}, violations {len(report.violations)}")
