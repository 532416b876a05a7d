"""The SDK's Prometheus endpoint, read as Prometheus does it."""

import asyncio
import re
import urllib.request
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from lock_interceptor.dev.process import HOST, free_ports
from lock_interceptor.metrics import Metric, histogram_buckets

SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
PREFIX = "lock_interceptor_"

Reads = Callable[..., Coroutine[Any, Any, None]]
"""Waits until a metric has a value."""


@dataclass(frozen=True)
class Sample:
    """One line."""

    name: str
    labels: dict[str, str]
    value: float


class Endpoint:
    """A runtime of Temporal that can be asked for its metrics."""

    def __init__(self, *, durations_as_seconds: bool = False) -> None:
        self._address = f"{HOST}:{free_ports(1)[0]}"
        config = PrometheusConfig(
            self._address,
            durations_as_seconds=durations_as_seconds,
            histogram_bucket_overrides=histogram_buckets(durations_as_seconds=durations_as_seconds),
        )
        self.runtime = Runtime(telemetry=TelemetryConfig(metrics=config))

    def text(self) -> str:
        """What it answers, without what the SDK itself counts."""
        with urllib.request.urlopen(f"http://{self._address}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return "\n".join(line for line in lines if PREFIX in line)

    async def samples(self, **labels: str) -> list[Sample]:
        """The samples that have at least these labels."""
        text = await asyncio.to_thread(self.text)
        found = (SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#"))
        samples = [Sample(each[1], dict(LABEL.findall(each[2])), float(each[3])) for each in found if each]
        return [sample for sample in samples if labels.items() <= sample.labels.items()]


@dataclass(frozen=True)
class Readings:
    """What the endpoint says of one task queue."""

    endpoint: Endpoint
    task_queue: str

    async def of(self, metric: Metric, suffix: str = "", **labels: str) -> float:
        """The value, summed up over what the labels leave open; histograms need a suffix."""
        samples = await self.endpoint.samples(task_queue=self.task_queue, **labels)
        return sum(sample.value for sample in samples if sample.name == metric.name + suffix)
