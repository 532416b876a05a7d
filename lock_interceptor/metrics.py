"""What is counted of locks, and how it gets onto a meter. Names, kinds and labels are API.

The meter is Temporal's, so that all this comes out wherever the user's Prometheus or OpenTelemetry already
reads the SDK's own metrics. What has no bound is no label: not keys, workflow ids or workers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from lock_interceptor.harmless import Harmless

if TYPE_CHECKING:  # tools that only look at locks need not load the SDK
    from temporalio.common import (
        MetricAttributes,
        MetricCounter,
        MetricGauge,
        MetricHistogramTimedelta,
        MetricMeter,
    )

LABELS = ("namespace", "task_queue", "activity_type", "lock_name")
"""What every metric is labelled with. All but the last stand on the meter that is handed in."""


@dataclass(frozen=True, eq=False, slots=True)
class Metric:
    """One metric."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    """Histograms are durations: milliseconds, or seconds where the user has told the SDK so."""
    description: str
    reasons: tuple[str, ...] = ()
    """Values of one more label, ``reason``."""


GRANTED = Metric("lock_interceptor_granted", "counter", "Locks that were granted")
WAITED = Metric(
    "lock_interceptor_waited", "histogram", "How long an activity waited for a lock that it was granted"
)
HELD = Metric("lock_interceptor_held", "histogram", "How long a lock was held until it was free again")
WAITING = Metric("lock_interceptor_waiting", "gauge", "Activities that wait for a lock in this process now")
HOLDING = Metric("lock_interceptor_holding", "gauge", "Locks that activities in this process hold now")
PARKED = Metric(
    "lock_interceptor_parked", "counter", "Attempts that ended without a lock, to come back later"
)
DOUBTFUL = Metric("lock_interceptor_doubtful", "counter", "Leases that a renewal has failed for")
LOST = Metric(
    "lock_interceptor_lost",
    "counter",
    "Leases that ended before their activity gave them back",
    reasons=("expired", "gone", "timeout"),
)
RELEASE_FAILED = Metric(
    "lock_interceptor_release_failed",
    "counter",
    "Locks that could not be given back, and ended by themselves",
)
STORE_ERRORS = Metric("lock_interceptor_store_errors", "counter", "Requests that Redis did not answer")
NOT_REPLICATED = Metric(
    "lock_interceptor_not_replicated", "counter", "Grants that no replica has confirmed in time"
)
CLOCK_STEPS = Metric(
    "lock_interceptor_clock_steps",
    "counter",
    "Steps forward of the clock of a Redis server that were noticed",
)

ALL = (
    GRANTED,
    WAITED,
    HELD,
    WAITING,
    HOLDING,
    PARKED,
    DOUBTFUL,
    LOST,
    RELEASE_FAILED,
    STORE_ERRORS,
    NOT_REPLICATED,
    CLOCK_STEPS,
)

_BUCKETS = (0.01, 0.1, 0.5, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400)


def histogram_buckets(*, durations_as_seconds: bool = False) -> Mapping[str, Sequence[float]]:
    """Buckets that suit locks, for ``histogram_bucket_overrides``; those of the SDK end at 10 s.

    Args:
        durations_as_seconds: as in the same `temporalio.runtime.PrometheusConfig` or ``OpenTelemetryConfig``.
    """
    bounds = tuple(bound if durations_as_seconds else bound * 1000 for bound in _BUCKETS)
    return {metric.name: bounds for metric in ALL if metric.kind == "histogram"}


_harmless = Harmless("the metric meter")


class Recorder:
    """Counts what happens to one lock name under one activity type. Without a meter it counts nothing.

    Safe to use from several threads. None of its methods raises, whatever the meter does.
    """

    def __init__(self, meter: MetricMeter | None = None, lock_name: str = "") -> None:
        """Create all instruments; a recorder is made to be kept.

        Args:
            meter: has the labels but for the name of the lock.
            lock_name: without the key.
        """
        self._counters: dict[Metric, MetricCounter] = {}
        self._histograms: dict[Metric, MetricHistogramTimedelta] = {}
        self._gauges: dict[Metric, MetricGauge] = {}
        self._levels: dict[Metric, int] = {}
        self._lock = threading.Lock()
        if meter is not None:
            with _harmless:
                self._create(meter, {"lock_name": lock_name})

    def count(self, metric: Metric, *, reason: str | None = None) -> None:
        """Add one to a counter."""
        if counter := self._counters.get(metric):
            with _harmless:
                counter.add(1, None if reason is None else {"reason": reason})

    def observe(self, metric: Metric, seconds: float) -> None:
        """Record a duration in a histogram."""
        if histogram := self._histograms.get(metric):
            with _harmless:
                histogram.record(timedelta(seconds=max(seconds, 0)))

    def change(self, metric: Metric, by: int) -> None:
        """Add to a gauge, or subtract with a negative number."""
        if gauge := self._gauges.get(metric):
            with _harmless, self._lock:
                self._levels[metric] = level = self._levels.get(metric, 0) + by
                gauge.set(level)

    def _create(self, meter: MetricMeter, labels: MetricAttributes) -> None:
        for metric in ALL:
            name, text = metric.name, metric.description
            if metric.kind == "histogram":
                # "duration" is what the SDK turns into milliseconds or seconds, whichever the user wants
                histogram = meter.create_histogram_timedelta(name, text, "duration")
                self._histograms[metric] = histogram.with_additional_attributes(labels)
            elif metric.kind == "gauge":
                self._gauges[metric] = meter.create_gauge(name, text).with_additional_attributes(labels)
                self.change(metric, 0)
            else:
                counter = meter.create_counter(name, text).with_additional_attributes(labels)
                self._counters[metric] = counter
                # what begins with its first event has no rate, and that event would go unnoticed
                for reason in metric.reasons or (None,):
                    counter.add(0, None if reason is None else {"reason": reason})


SILENT = Recorder()
"""Counts nothing: for locks that are taken outside of an activity."""
