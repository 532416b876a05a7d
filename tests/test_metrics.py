"""What is counted of locks, read where a Prometheus of the user would read it, from real workers."""

import time
from typing import Any

from activities_under_test import in_coroutine
from prometheus_endpoint import Endpoint, Readings, Reads
from stage import Kind, Stage, until
from temporalio import activity
from temporalio.client import Client

from lock_interceptor import LockPlugin, metrics, needs_lock

pytest_plugins = ["metric_fixtures"]

ACTIVITY = "in_coroutine"
ROUNDED = 0.001
"""Seconds: durations are cut to milliseconds."""


@activity.defn
@needs_lock(lock_name="per tenant", key=str)
async def keyed(tenant: str) -> str:
    return tenant


async def test_contention(
    stage: Stage, kind: Kind, metered: Client, readings: Readings, reads: Reads
) -> None:
    """An activity of any kind is counted while it waits, when granted, while it holds and at its end."""
    async with stage.worker(kind=kind, client=metered):
        started = time.monotonic()
        async with stage.somebody_else():
            handle = await stage.start(kind, stage.play(waits=True))
            await reads(metrics.WAITING, 1)
            seen_waiting = time.monotonic()
            assert await readings.of(metrics.GRANTED) == 0
            assert await readings.of(metrics.HOLDING) == 0
            let_go = time.monotonic()
        await reads(metrics.HOLDING, 1)
        seen_holding = time.monotonic()
        assert await readings.of(metrics.WAITING) == 0
        assert await readings.of(metrics.GRANTED) == 1
        assert await readings.of(metrics.WAITED, "_count") == 1
        assert await readings.of(metrics.HELD, "_count") == 0
        cued = time.monotonic()
        stage.cue()
        await handle.result()
        await reads(metrics.HELD, 1, "_count")
        over = time.monotonic()
    assert await readings.of(metrics.HOLDING) == 0
    waited, held = await readings.of(metrics.WAITED, "_sum"), await readings.of(metrics.HELD, "_sum")
    assert let_go - seen_waiting <= waited / 1000 + ROUNDED <= seen_holding - started + ROUNDED
    assert cued - seen_holding <= held / 1000 + ROUNDED <= over - let_go + ROUNDED


async def test_names_and_labels(
    stage: Stage, metered: Client, endpoint: Endpoint, reads: Reads, task_queue: str
) -> None:
    """All metrics are there as documented after one activity, keys taken together and troubles at 0."""
    async with stage.worker(keyed, client=metered):
        for tenant in ("one", "two"):
            await stage.run("keyed", tenant)
        await reads(metrics.HELD, 2, "_count")
    values = {
        "namespace": "default",
        "task_queue": task_queue,
        "activity_type": "keyed",
        "lock_name": "per tenant",
        # of the SDK, on all metrics unless `attach_service_name` says otherwise
        "service_name": "temporal-core-sdk",
    }
    assert set(values) - {"service_name"} == set(metrics.LABELS)
    expected = [
        (metric.name + suffix, values | ({"reason": reason} if reason else {}))
        for metric in metrics.ALL
        for suffix in (("_sum", "_count") if metric.kind == "histogram" else ("",))
        for reason in metric.reasons or ("",)
    ]
    samples = await endpoint.samples(task_queue=task_queue)
    seen = [(sample.name, sample.labels) for sample in samples if not sample.name.endswith("_bucket")]
    assert sorted(seen, key=str) == sorted(expected, key=str)
    counted = {sample.name for sample in samples if sample.value and "le" not in sample.labels}
    usual = {metrics.GRANTED.name, *(f"{each.name}_count" for each in (metrics.WAITED, metrics.HELD))}
    assert usual <= counted <= usual | {f"{each.name}_sum" for each in (metrics.WAITED, metrics.HELD)}


async def test_plugin(stage: Stage, kind: Kind, metered: Client, readings: Readings, reads: Reads) -> None:
    """With the plugin activities of any kind are counted, also where a worker has no workflows."""
    workflows_only = stage.worker(interceptors=[])
    activities_only = stage.worker(
        kind=kind, client=metered, interceptors=[], workflows=[], plugins=[LockPlugin(stage.settings)]
    )
    async with workflows_only, activities_only:
        await stage.run(kind, stage.play())
        await reads(metrics.HELD, 1, "_count", activity_type=kind.activity)
    assert await readings.of(metrics.GRANTED) == 1


async def test_parking(stage: Stage, metered: Client, readings: Readings, reads: Reads) -> None:
    """Parked attempts are counted, and one that comes back has waited since it was scheduled."""
    async with stage.worker(in_coroutine, client=metered):
        started = time.monotonic()
        async with stage.somebody_else():
            handle = await stage.start(ACTIVITY, stage.play(), start_to_close=1)
            await stage.failed_attempt(handle, "LockNotAcquired")
            parked = time.monotonic()
            await reads(metrics.WAITING, 0)
            assert await readings.of(metrics.PARKED) >= 1
            assert await readings.of(metrics.GRANTED) == 0
            await until(lambda: _is_back(stage, handle), "the second attempt")
            let_go = time.monotonic()
        await handle.result()
        over = time.monotonic()
    assert await readings.of(metrics.GRANTED) == 1
    waited = await readings.of(metrics.WAITED, "_sum")
    assert let_go - parked <= waited / 1000 + ROUNDED <= over - started + ROUNDED


async def _is_back(stage: Stage, handle: Any) -> bool:
    info = await stage.pending(handle)
    return info is not None and info.attempt >= 2
