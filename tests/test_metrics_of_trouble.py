"""What goes wrong with locks is counted, once and for its reason."""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from activities_under_test import in_coroutine
from prometheus_endpoint import Readings, Reads
from proxy import TcpProxy
from pydantic import SecretStr
from servers import command
from stage import Stage, until
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from lock_interceptor import metrics

pytest_plugins = ["metric_fixtures"]

ACTIVITY = "in_coroutine"
SHORT = timedelta(seconds=2)
"""A lease."""


async def test_lost(stage: Stage, metered: Client, readings: Readings, reads: Reads) -> None:
    """A lease that Redis has forgotten is counted as gone, at once, and the lock as held no more."""
    stage = stage.with_settings(lease=SHORT)
    async with stage.worker(in_coroutine, client=metered):
        handle = await stage.start(ACTIVITY, stage.play(waits=True, swallows=True))
        await stage.saw("began1")
        command(stage.redis, "DEL", *stage.keys())
        await reads(metrics.LOST, 1, reason="gone")
        await stage.saw("began2")
        stage.cue()
        await handle.result()
        await reads(metrics.HELD, 2, "_count")
    assert await readings.of(metrics.LOST) == 1
    assert await readings.of(metrics.GRANTED) == 2
    assert await readings.of(metrics.HOLDING) == 0
    assert await readings.of(metrics.DOUBTFUL) == 0


async def test_lost_at_the_end(stage: Stage, metered: Client, reads: Reads) -> None:
    """A lease that turns out to be gone when it is given back is counted, too."""
    async with stage.worker(in_coroutine, client=metered):
        handle = await stage.start(ACTIVITY, stage.play(waits=True))
        await stage.saw("began1")
        command(stage.redis, "DEL", *stage.keys())
        stage.cue()
        await handle.result()
        await reads(metrics.HELD, 2, "_count")
        await reads(metrics.LOST, 1, reason="gone")
        await reads(metrics.HOLDING, 0)


async def test_out_of_time(stage: Stage, metered: Client, readings: Readings, reads: Reads) -> None:
    """A lease that ends with schedule_to_close_timeout is told from one that Redis has lost."""
    async with stage.worker(in_coroutine, client=metered):
        handle = await stage.start(ACTIVITY, stage.play(waits=True), schedule_to_close=1.5)
        await reads(metrics.LOST, 1, reason="timeout")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert await readings.of(metrics.LOST) == 1


@contextlib.asynccontextmanager
async def cut_off_while_holding(
    stage: Stage, metered: Client
) -> AsyncIterator[tuple[TcpProxy, WorkflowHandle[Any, Any]]]:
    """A worker that holds the lock when its way to Redis is cut; entered when that has happened."""
    with TcpProxy(stage.redis.port) as proxy:
        stage = stage.with_settings(lease=SHORT, redis_url=SecretStr(proxy.url()))
        async with stage.worker(in_coroutine, client=metered):
            handle = await stage.start(ACTIVITY, stage.play(waits=True))
            await stage.saw("began1")
            proxy.refuse()
            proxy.cut()
            yield proxy, handle


async def test_outage(stage: Stage, metered: Client, readings: Readings, reads: Reads) -> None:
    """An outage shows as errors and a doubtful lease, and as a lost one when it outlasts the lease."""
    async with cut_off_while_holding(stage, metered) as (proxy, handle):
        await reads(metrics.DOUBTFUL, 1)
        assert await readings.of(metrics.LOST) == 0
        assert await readings.of(metrics.HOLDING) == 1
        await reads(metrics.LOST, 1, reason="expired")
        assert await readings.of(metrics.STORE_ERRORS) >= 1
        assert await readings.of(metrics.HOLDING) == 0
        proxy.listen()
        stage.cue()
        await handle.result()


async def test_release_failure(stage: Stage, metered: Client, readings: Readings, reads: Reads) -> None:
    """A lock that cannot be given back is counted, and as held for as long as Redis keeps it for us."""
    async with cut_off_while_holding(stage, metered) as (proxy, handle):
        stage.cue()
        await handle.result()
        await reads(metrics.RELEASE_FAILED, 1)
        await reads(metrics.HOLDING, 0)
        assert await readings.of(metrics.STORE_ERRORS) >= 1
        assert await readings.of(metrics.HELD, "_count") == 1
        proxy.listen()
        # whose turn it is next sweeps up what has expired
        await stage.run(ACTIVITY, stage.play())


async def test_waiting_out_an_outage(stage: Stage, metered: Client, readings: Readings) -> None:
    """Requests that an activity repeats until Redis answers are counted."""
    with TcpProxy(stage.redis.port) as proxy:
        proxy.refuse()
        stage = stage.with_settings(redis_url=SecretStr(proxy.url()))
        async with stage.worker(in_coroutine, client=metered):
            handle = await stage.start(ACTIVITY, stage.play())

            async def counted() -> bool:
                return await readings.of(metrics.STORE_ERRORS) >= 2

            await until(counted, "two errors")
            proxy.listen()
            await handle.result()
    assert await readings.of(metrics.GRANTED) == 1


async def test_not_replicated(stage: Stage, metered: Client, readings: Readings) -> None:
    """Each grant that had to do without a replica's confirmation is counted."""
    stage = stage.with_settings(durability="failover")
    async with stage.worker(in_coroutine, client=metered):
        for _ in range(2):
            await stage.run(ACTIVITY, stage.play())
    assert await readings.of(metrics.NOT_REPLICATED) == 2
