"""A pytest plugin: a client whose workers count, and what is read of that."""

import pytest
from prometheus_endpoint import Endpoint, Readings, Reads
from stage import Stage, until
from temporalio.client import Client

from lock_interceptor.metrics import Metric


@pytest.fixture(scope="module")
def endpoint() -> Endpoint:
    """One for all tests, which tell their samples by the task queue: a runtime has threads that stay."""
    return Endpoint()


@pytest.fixture
async def metered(endpoint: Endpoint, stage: Stage) -> Client:
    """A client whose workers count."""
    return await Client.connect(stage.temporal.address, runtime=endpoint.runtime)


@pytest.fixture
def readings(endpoint: Endpoint, task_queue: str) -> Readings:
    """What is counted in this test."""
    return Readings(endpoint, task_queue)


@pytest.fixture
def reads(readings: Readings) -> Reads:
    """Waits until a metric has a value."""

    async def reads(metric: Metric, value: float, suffix: str = "", **labels: str) -> None:
        async def is_read() -> bool:
            return await readings.of(metric, suffix, **labels) == value

        await until(is_read, f"{metric.name} to be {value}")

    return reads
