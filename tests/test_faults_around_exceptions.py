"""The fault matrix around the lock: what is no `Exception`, raised where a lock is held or wanted.

The locked activity has to fail as the same activity fails without its lock, in a worker that goes on.
"""

import asyncio
import contextlib
from collections.abc import Iterator

import history
import pytest
from exit_worker import ERRORS, Raising
from figures import measured
from history import Expectations
from process_bodies import Work
from process_fleet import Fleet, fleet

from lock_interceptor.dev import RedisServer, TemporalServer

PLACES = {
    "body, async": ("async", "body"),
    "body, thread": ("thread", "body"),
    "body, process": ("process", "body"),
    "key": ("async", "key"),
    "waiting": ("async", "waiting"),
}
LEASE = 60.0
"""Seconds: what is free within a test was given back."""


@pytest.fixture(scope="module")
def workers(
    temporal_server: TemporalServer, matrix_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """Processes that serve all rows for as long as they live."""
    directory = tmp_path_factory.mktemp("exceptions") / "history"
    with (
        history.recording(directory, matrix_server) as run,
        fleet(temporal_server, matrix_server, run, LEASE) as found,
    ):
        yield found


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("error", ERRORS)
async def test_raised(
    error: str, place: str, workers: Fleet, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It ends the attempt as it does without the lock, nothing else ends, and the lock is given back."""
    kind, where = PLACES[place]
    row, raising, scene = f"{error} in {place}", Raising(error, where), tmp_path_factory.mktemp("scene")
    beside = asyncio.ensure_future(workers.call(kind, "bystander", Work(str(scene), "bystander")))
    try:
        # who waits raises at its first heartbeat
        how = {"heartbeat": 1.0} if where == "waiting" else {}
        unlocked = await workers.call(kind, f"plain_{kind}", raising, **how)
        waits = workers.somebody_else("raising", "key") if where == "waiting" else contextlib.nullcontext()
        async with waits:
            locked = await workers.call(kind, f"locked_{kind}", raising, **how)
    finally:
        (scene / "go").touch()
        goes_on = await beside
    assert locked == unlocked, f"{row}: with the lock {locked!r}; without it {unlocked!r}"
    assert goes_on == "done", f"{row}: another activity of the same worker ended as {goes_on!r}"
    await workers.until_free("raising", "key", 10)
    measured(f"{row}: {locked}")


async def test_the_history(workers: Fleet) -> None:
    """All these rows together break no promise."""
    for kind in ("thread", "process"):
        assert await workers.member(kind).end(20) == 0, workers.member(kind).last_words()
    report = workers.run.check(Expectations(at_least={"grants": 5}, poll=0.12, slack=3.0))
    measured(f"all of these: grants {report.counts['grants']}, violations {len(report.violations)}")
