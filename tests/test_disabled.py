"""With IS_LOCKING_DISABLED everything runs, unlocked, and nobody can miss that."""

import asyncio

from stage import Kind, Stage
from structlog.testing import capture_logs
from temporalio import activity
from temporalio.client import Client

from lock_interceptor import LockInterceptor, LockPlugin, current_lease, needs_lock


@activity.defn
@needs_lock(lock_name="cap", max_locks=2)
@needs_lock(lock_name="tenant", key=lambda tenant: tenant)
@needs_lock(lock_name="broken", key=lambda tenant: tenant.nothing)
async def stacked(tenant: str) -> list[str]:
    names = ["cap", "tenant", f"tenant[{tenant}]", "broken"]
    return [current_lease(name).label for name in names]


async def test_disabled(stage: Stage, kind: Kind) -> None:
    """With locking disabled everything runs, unlocked, wherever it could not be locked, and knows a lease."""
    stage = stage.with_settings(disabled=True)
    async with stage.worker(stacked, kind=kind):
        async with stage.somebody_else():
            await stage.run(kind, stage.play(), schedule_to_close=None, start_to_close=10)
            await stage.run(kind, stage.play(name="local-"), local=True)
        assert await stage.run("stacked", "a") == ["cap", "tenant[a]", "tenant[a]", "broken"]
    token, slot, lost = (await stage.saw("began1")).split()
    assert int(token) > 0
    assert (slot, lost) == ("0", "False")


async def test_disabled_says_so(stage: Stage) -> None:
    """That nothing is locked is said loudly, once for each worker, with the way back."""
    settings = stage.with_settings(disabled=True).settings
    plugin, logs = LockPlugin(settings), []
    with capture_logs() as captured:
        client = await Client.connect(stage.temporal.address, plugins=[plugin])
        assert not captured
        for workers in (1, 2):
            async with stage.worker(stacked, interceptors=[], client=client):
                await asyncio.gather(stage.run("stacked", "a"), stage.run("stacked", "b"))
            logs = [entry for entry in captured if entry["event"] == "lock.disabled"]
            assert len(logs) == workers
        async with stage.worker(stacked, interceptors=[LockInterceptor(settings)]):
            await asyncio.gather(stage.run("stacked", "a"), stage.run("stacked", "b"))
        logs = [entry for entry in captured if entry["event"] == "lock.disabled"]
        assert len(logs) == 3
    assert {entry["log_level"] for entry in logs} == {"warning"}
    assert all("unset IS_LOCKING_DISABLED" in entry["remedy"] for entry in logs)
    assert not stage.keys()
