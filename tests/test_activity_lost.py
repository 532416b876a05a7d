"""A lease that is lost while the body runs: the body is told as far as its kind allows, and runs again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from proxy import TcpProxy
from pydantic import SecretStr
from servers import command
from stage import Kind, Stage, until
from structlog.testing import capture_logs


@dataclass(frozen=True)
class Loss:
    """A way to lose a lease."""

    stage: Stage
    lose: Callable[[], Any]
    recover: Callable[[], Any]


@pytest.fixture(params=["deleted", "unreachable"])
def loss(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Loss]:
    """The lock's key is deleted, or Redis cannot be reached for longer than the lease."""
    stage = stage.with_settings(lease=timedelta(seconds=2))
    if request.param == "deleted":
        yield Loss(stage, lambda: command(stage.redis, "DEL", *stage.keys()), lambda: None)
    else:
        with TcpProxy(stage.redis.port) as proxy:
            there = stage.with_settings(redis_url=SecretStr(proxy.url()))
            yield Loss(there, proxy.black_hole, proxy.heal)


async def next_attempt_succeeds(loss: Loss, handle: Any) -> None:
    """The first attempt ends as a retryable LockLost, and the second one gets a higher token."""
    failed = await loss.stage.failed_attempt(handle, "LockLost")
    assert not failed.last_failure.application_failure_info.non_retryable
    assert "lock lock was lost while its body ran" in failed.last_failure.message
    loss.recover()
    loss.stage.cue()
    second = (await handle.result()).split()[0]
    first = (await loss.stage.saw("began1")).split()[0]
    assert int(second) > int(first)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("async", {}),
        ("thread", {"heartbeats": True}),
        ("thread", {"asks_lease": True}),
        ("process", {"asks_lease": True}),
    ],
    ids=["async", "thread that heartbeats", "thread that asks", "process that asks"],
)
async def test_body_is_stopped(loss: Loss, kinds: dict[str, Kind], name: str, how: dict[str, bool]) -> None:
    """A coroutine is cancelled; a thread is told at its next heartbeat, and all others when they ask."""
    stage, kind = loss.stage, kinds[name]
    async with stage.worker(kind=kind):
        handle = await stage.start(kind, stage.play(waits=True, **how), heartbeat=20)
        await stage.saw("began1")
        loss.lose()
        if name == "async":
            await stage.saw("cancelled1")
        else:
            assert await stage.saw("stopped1") == "LockLost"
        await next_attempt_succeeds(loss, handle)


@pytest.mark.parametrize(
    ("name", "how"),
    [("async", {"swallows": True}), ("thread", {}), ("process", {"heartbeats": True})],
    ids=["async that swallows", "thread that asks nothing", "process that asks nothing"],
)
async def test_body_that_runs_on(loss: Loss, kinds: dict[str, Kind], name: str, how: dict[str, bool]) -> None:
    """What cannot be stopped runs to its end, and what it returns then is not taken for a success."""
    stage, kind = loss.stage, kinds[name]
    async with stage.worker(kind=kind):
        handle = await stage.start(kind, stage.play(waits=True, **how), heartbeat=20)
        await stage.saw("began1")
        with capture_logs() as logs:
            loss.lose()
            await until(lambda: [entry for entry in logs if entry["event"] == "lock.lost"], "lock.lost")
        if name != "async":
            assert not (stage.scene / "stopped1").exists()
            info = await stage.pending(handle)
            assert info is not None
            assert info.attempt == 1
            stage.cue("go1")
        await stage.saw("done1")
        await next_attempt_succeeds(loss, handle)
