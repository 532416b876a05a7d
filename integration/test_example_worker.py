"""docker-compose.yml as users have it: Temporal, Redis and several workers of this repository's image."""

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest
from engine import docker
from example_worker import LIMIT, Ship
from figures import measured
from load import Intervals
from stack import PROJECT, Stack
from temporalio.client import Client

from lock_interceptor.testing import Interval, assert_never_more_than

WORKERS = 3
ORDERS = 90
REGIONS = ("north", "south")


@pytest.fixture
def workers(stack: Stack) -> Iterator[list[str]]:
    """The containers of the example."""
    with stack.running("worker"):
        label = "label=com.docker.compose.service=worker"
        names = docker("ps", "--filter", label, "--format", "{{.Names}}").split()
        yield [name for name in names if name.startswith(PROJECT)]


async def test_never_more_than_the_limit_pack_in_a_region(client: Client, workers: list[str]) -> None:
    """Three for each region, wherever they run, at seats of their own, and tokens rise at each seat."""
    assert len(workers) == WORKERS
    handles = [
        await client.start_workflow(
            Ship.run, args=[REGIONS[order % 2], order], id=str(uuid4()), task_queue="orders"
        )
        for order in range(ORDERS)
    ]
    async with asyncio.timeout(90):
        parcels = await asyncio.gather(*(handle.result() for handle in handles))

    for region in REGIONS:
        here = sorted(
            (parcel for parcel in parcels if REGIONS[parcel.order % 2] == region), key=lambda each: each.began
        )
        assert_never_more_than(
            LIMIT, [Interval(each.began, each.ended, f"order {each.order}") for each in here]
        )
        for seat in range(LIMIT):
            packed = [parcel for parcel in here if parcel.seat == seat]
            assert_never_more_than(1, [Interval(each.began, each.ended) for each in packed])
            tokens = [parcel.token for parcel in packed]
            assert tokens == sorted(set(tokens))
        by_worker = {parcel.worker for parcel in here}
        most = Intervals([(parcel.began, parcel.ended) for parcel in here]).most_at_once()
        measured(f"{region}: {len(here)} orders, {len(by_worker)} workers, at most {most} of {LIMIT} at once")
        assert len(by_worker) == WORKERS


async def test_the_command_line_in_the_container(workers: list[str]) -> None:
    """It finds the locks that the worker uses, by the worker's own settings."""
    said = docker("exec", workers[0], "lock-interceptor", "doctor")
    assert "ok" in said.lower(), said
