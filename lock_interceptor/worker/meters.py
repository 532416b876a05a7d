"""Which meter of Temporal counts what an activity's locks do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporalio import activity
from temporalio.common import MetricMeter
from temporalio.runtime import Runtime

from lock_interceptor.harmless import Harmless
from lock_interceptor.metrics import Recorder

_harmless = Harmless("the metric meter")


class Meters:
    """Recorders by their labels, each made once: an activity must not pay for that each time.

    What is kept is as bounded as the labels are. Interceptors in one process that share it serve workers of
    one runtime.
    """

    def __init__(self) -> None:
        self._runtime: Runtime | None = None
        self._recorders: dict[tuple[str, ...], Recorder] = {}

    def learn(self, config: Mapping[str, Any]) -> None:
        """Take note of the runtime of a worker that is being made."""
        if client := config.get("client"):
            with _harmless:
                self._runtime = client.service_client.config.runtime

    def recorder(self, info: activity.Info, lock_name: str) -> Recorder:
        """What counts for a lock of the running activity."""
        labels = (info.namespace, info.task_queue, info.activity_type, lock_name)
        if found := self._recorders.get(labels):
            return found
        recorder = Recorder()
        with _harmless:
            recorder = Recorder(self._meter(info), lock_name)
        return self._recorders.setdefault(labels, recorder)

    def _meter(self, info: activity.Info) -> MetricMeter:
        try:
            return activity.metric_meter()
        except RuntimeError:
            return self._meter_of_runtime(info)

    def _meter_of_runtime(self, info: activity.Info) -> MetricMeter:
        """The same for an activity in a process pool, to which the SDK gives none, not even here."""
        try:
            runtime = self._runtime or Runtime.default()
        except RuntimeError:  # forbidden by Runtime.prevent_default()
            return MetricMeter.noop
        return runtime.metric_meter.with_additional_attributes(
            {
                "namespace": info.namespace,
                "task_queue": info.task_queue,
                "activity_type": info.activity_type,
            }
        )
