"""All stores over thousands of random steps: they answer alike, and no promise is broken on the way."""

import asyncio
import itertools
import os
from collections.abc import Iterator

import pytest
from figures import measured
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from lock_records import all_bands, is_exact
from model_world import World
from store_machine import Machine
from structlog.testing import capture_logs

from lock_interceptor.dev import RedisServer

pytest_plugins = ["store_fixtures"]

EXAMPLES, STEPS = int(os.environ.get("MODEL_EXAMPLES", "200")), 50
FLOOR = 30 * EXAMPLES
"""Requests that a run sends at least."""
EXPECTED = (
    *(
        "granted",
        "waiting",
        "settling",
        "again",
        "renew True",
        "renew False",
        "release True",
        "release False",
    ),
    *("parked from holding", "parked from the line", "parked from holding with ticket", "repeated"),
    *("time", "edge", "back", "failed over", "failed over, lost", "deleted", "expired"),
    *(f"{what} beside another attempt" for what in ("acquire", "release", "park")),
    *("S2 checked", "S4 checked", "asked parked"),
)
"""What a run that proves something has seen, each more than once."""


@pytest.fixture
def world(redis7: RedisServer, valkey: RedisServer, told_time: None) -> Iterator[World]:
    """The stores on both servers and in memory, under one clock."""
    with asyncio.Runner() as runner:
        # not `runner.run`, which minds Ctrl-C anew for each of thousands of calls
        world = World(runner.get_loop().run_until_complete, [redis7, valkey])
        with capture_logs():  # the store warns of each step that the clock takes
            yield world
        world.close()


@pytest.mark.timeout(600)  # to find the shortest failing case takes minutes
def test_all_stores_behave_alike(world: World) -> None:
    """Whatever happens in whatever order, all stores answer alike, and no promise is broken on the way."""
    run_state_machine_as_test(
        type("WorldMachine", (Machine,), {"world": world}),
        settings=settings(
            derandomize=True,
            database=None,
            deadline=None,
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )
    requests = sum(world.seen[what] for what in EXPECTED[:11])
    measured(f"{requests:,} requests to each of {len(world.stores)} stores: {dict(world.seen.most_common())}")
    assert requests >= FLOOR
    few = {what: world.seen[what] for what in EXPECTED if world.seen[what] < 20}
    assert not few, world.seen


def test_bands_are_apart() -> None:
    """No two kinds of records share a score, and all scores are exact in a double."""
    for (_, end), (start, _) in itertools.pairwise(all_bands()):
        assert end <= start
    assert all(is_exact(edge) for band in all_bands() for edge in band)
