"""The instruments behind the metrics: made once, in the user's unit, silent without a meter."""

import threading
from dataclasses import replace

import pytest
from prometheus_endpoint import Endpoint
from store_cases import RedisBench
from temporalio.runtime import Runtime
from temporalio.testing import ActivityEnvironment

from lock_interceptor import metrics
from lock_interceptor.metrics import Recorder, histogram_buckets
from lock_interceptor.worker.meters import Meters

pytest_plugins = ["store_fixtures"]

HOURS = 7200.0


async def test_durations_follow_the_users_unit() -> None:
    """Who wants the SDK's durations in seconds gets those of locks in seconds, and buckets that fit."""
    endpoint = Endpoint(durations_as_seconds=True)
    recorder = Recorder(endpoint.runtime.metric_meter, "lock")
    recorder.observe(metrics.WAITED, 90)
    samples = await endpoint.samples(lock_name="lock")
    (total,) = [sample.value for sample in samples if sample.name == f"{metrics.WAITED.name}_sum"]
    assert total == 90
    buckets = {
        float(sample.labels["le"]): sample.value
        for sample in samples
        if sample.name.endswith("waited_bucket")
    }
    bounds = histogram_buckets(durations_as_seconds=True)[metrics.WAITED.name]
    assert set(buckets) == {*bounds, float("inf")}
    assert [buckets[60], buckets[120]] == [0, 1]
    assert [1000 * bound for bound in bounds] == list(histogram_buckets()[metrics.WAITED.name])


async def test_levels_from_many_threads() -> None:
    """Gauges are right when several loops and threads come and go at once."""
    endpoint = Endpoint()
    recorder = Recorder(endpoint.runtime.metric_meter, "lock")

    def come_and_go() -> None:
        for _ in range(200):
            recorder.change(metrics.WAITING, 1)
            recorder.change(metrics.WAITING, -1)
        recorder.change(metrics.WAITING, 1)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    samples = await endpoint.samples(lock_name="lock")
    assert [sample.value for sample in samples if sample.name == metrics.WAITING.name] == [4]


async def test_a_clock_step_is_counted(redis_bench: RedisBench) -> None:
    """A step of the server's clock is counted once, for the lock whose renewal has noticed it."""
    endpoint = Endpoint()
    recorder = Recorder(endpoint.runtime.metric_meter, "lock")
    claim = replace(redis_bench.claim("owner"), metrics=recorder)
    await redis_bench.hold(claim, lease=HOURS)
    await redis_bench.renew(claim, HOURS)
    redis_bench.clock.step(60)
    for _ in range(2):
        await redis_bench.renew(claim, HOURS)
    samples = await endpoint.samples(lock_name="lock")
    assert [sample.value for sample in samples if sample.name == metrics.CLOCK_STEPS.name] == [1]


async def test_instruments_are_made_once() -> None:
    """An activity finds what counts for its lock ready, and each lock and activity type has its own."""
    meters, environment = Meters(), ActivityEnvironment()
    name, info = environment.info.activity_type, environment.info

    def look() -> list[Recorder]:
        other = replace(info, activity_type=f"not {name}")
        return [meters.recorder(each, lock) for each in (info, info, other) for lock in ("a", "b")]

    first_a, first_b, second_a, second_b, other_a, other_b = environment.run(look)
    assert first_a is second_a
    assert first_b is second_b
    assert len({first_a, first_b, other_a, other_b}) == 4


def test_a_runtime_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no meter can be had an activity is not counted, and runs."""

    def forbidden() -> Runtime:
        raise RuntimeError("Cannot create default Runtime after Runtime.prevent_default has been called")

    monkeypatch.setattr(Runtime, "default", forbidden)
    # outside of an activity there is no meter either, as in one that runs in a process pool
    recorder = Meters().recorder(ActivityEnvironment().info, "lock")
    recorder.count(metrics.GRANTED)


def test_without_a_meter_nothing_is_counted() -> None:
    """Locks may be taken outside of an activity, where there is no meter."""
    recorder = Recorder()
    for metric in metrics.ALL:
        recorder.count(metric)
        recorder.observe(metric, 1)
        recorder.change(metric, 1)
