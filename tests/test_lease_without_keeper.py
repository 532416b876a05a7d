"""A lease that is not being renewed is lost, and its body is told at its end, whatever renews or does not."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from process_bodies import KINDS, ONE, SECOND, TWO, shielded_async, silent_thread
from process_faults import renews_nothing
from process_scene import scene, told_within
from stage import Kind

from lock_interceptor.dev import RedisServer

LONG = 2.2
"""Leases for which a body would work if nobody told it."""


@pytest.fixture(autouse=True)
def no_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is ever renewed here."""
    renews_nothing(monkeypatch)


@pytest.mark.parametrize("seconds", [1.0, 1.5], ids=["1 s", "1.5 s"])
@pytest.mark.parametrize("stacked", [False, True], ids=["one", "stacked"])
@pytest.mark.parametrize("kind", KINDS)
async def test_no_body_runs_past_its_lease_untold(  # noqa: PLR0917 - a row and its fixtures
    kind: str,
    stacked: bool,
    seconds: float,
    matrix_server: RedisServer,
    kinds: dict[str, Kind],
    tmp_path: Path,
) -> None:
    """With nothing that renews, a body of any kind is told when its lease ends, and the next one begins."""
    lease = timedelta(seconds=seconds)
    how = {"bodies": TWO, "locks": ("lock", SECOND)} if stacked else {}
    row = f"nothing renews, {kind}, {'two locks' if stacked else 'one lock'}, lease {seconds:g} s"
    with scene(matrix_server, tmp_path, kinds["process"].executor, row) as place:
        async with place.worker(lease=lease) as worker, place.worker(lease=lease) as other:
            with place.run.fault("nothing renews"):
                body = asyncio.ensure_future(worker.do(kind, LONG * seconds, "first", **how))
                await place.saw("first", "began")
                follower = asyncio.ensure_future(other.do("async", 0.05, "next", **how))
                assert await body == "LockLost", f"{row}: it was not told, its attempt ended so"
                assert await follower == "done"
    moments = {each.what: each.at for each in place.said("first")}
    assert moments["told"] - moments["began"] <= seconds + told_within(), f"{row}: told late"


@pytest.mark.parametrize(
    ("kind", "body"), [("async", shielded_async), ("thread", silent_thread)], ids=["shielded", "silent"]
)
async def test_a_body_that_nothing_reaches(
    kind: str, body: object, matrix_server: RedisServer, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    """A coroutine that swallows its cancel, and a thread that never heartbeats, find `lost` in time."""
    row = f"nothing renews, {body.__name__}"  # type: ignore[attr-defined]
    with scene(matrix_server, tmp_path, kinds["process"].executor, row) as place:
        async with place.worker() as worker:
            with place.run.fault("nothing renews"):
                attempt = await worker.do(kind, LONG, "first", bodies={kind: body})
    moments = {each.what: each.at for each in place.said("first")}
    assert "told" in moments, f"{row}: its lease was never lost"
    assert moments["told"] - moments["began"] <= 1 + told_within(), f"{row}: told late"
    assert attempt == "LockLost", f"{row}: what it did without its lock passed for done"


def test_these_are_all_kinds() -> None:
    """Each kind of activity that this package knows has its bodies here."""
    assert tuple(ONE) == tuple(TWO) == KINDS
