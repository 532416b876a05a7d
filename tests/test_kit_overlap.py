"""`OverlapRecorder` and `assert_never_more_than`: more at once than allowed is found, and shown."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.testing import ActivityEnvironment

from lock_interceptor.testing import Interval, OverlapRecorder, assert_never_more_than

INTERVALS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 5)).map(lambda pair: Interval(pair[0], pair[0] + pair[1])),
    max_size=12,
)


def test_touching_is_not_overlapping() -> None:
    """One that begins when another one ends does not overlap it."""
    assert_never_more_than(1, [Interval(1, 2), Interval(0, 1), Interval(2, 3)])
    assert_never_more_than(0, [])


def test_the_message_shows_who_and_when() -> None:
    """It tells the moment, who ran then and from when until when, and nobody else."""
    crowd = [
        Interval(10, 10.5, "early"),
        Interval(10.25, 12, "ann"),
        Interval(11, 13, "bob"),
        Interval(11.5, 11.75, "cy"),
    ]
    assert_never_more_than(3, crowd)
    with pytest.raises(AssertionError) as failure:
        assert_never_more_than(2, crowd)
    assert str(failure.value).splitlines() == [
        "3 ran at once, at most 2 may; 1.500 s after the first one began there were:",
        "  ann: from 0.250 s to 2.000 s",
        "  bob: from 1.000 s to 3.000 s",
        "  cy: from 1.500 s to 1.750 s",
    ]


def test_the_message_stays_readable() -> None:
    """A crowd of hundreds is counted, and twenty of them are shown."""
    with pytest.raises(AssertionError) as failure:
        assert_never_more_than(1, [Interval(0, 1)] * 300)
    lines = str(failure.value).splitlines()
    assert len(lines) == 22
    assert lines[1] == "  somebody: from 0.000 s to 1.000 s"
    assert lines[-1] == "  and 280 more"


@given(intervals=INTERVALS, limit=st.integers(0, 6))
def test_it_counts_as_one_who_looks_at_each_moment(intervals: list[Interval], limit: int) -> None:
    """It fails exactly when some moment has more than the limit; one without length runs for that moment."""
    moments = {interval.start for interval in intervals}
    most = max(
        (sum(i.start <= moment < i.end or i.start == moment for i in intervals) for moment in moments),
        default=0,
    )
    # of those without length, one that has begun earlier at the same moment is over
    longest = max((sum(i.start <= m < i.end for i in intervals) for m in moments), default=0)
    try:
        assert_never_more_than(limit, intervals)
    except AssertionError:
        assert most > limit
    else:
        assert longest <= limit


async def test_recorder_in_coroutines() -> None:
    """What overlaps is found by lock, also the one that still runs."""
    overlap = OverlapRecorder()

    async def body(lock: str) -> None:
        with overlap.running(lock):
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    await asyncio.gather(*(body(lock) for lock in ("north", "south", "north")))
    overlap.assert_never_more_than(2)
    overlap.assert_never_more_than(1, "south")
    assert (overlap.most("north"), overlap.most("south"), overlap.most()) == (2, 1, 3)
    assert (len(overlap.intervals("north")), len(overlap.intervals())) == (2, 3)
    with pytest.raises(AssertionError, match="lock north: 2 ran at once, at most 1 may"):
        overlap.assert_never_more_than(1)
    with overlap.running("east"), overlap.running("east"), pytest.raises(AssertionError) as failure:
        overlap.assert_never_more_than(1, "east")
    assert str(failure.value).count("on, still running") == 2


def test_recorder_in_threads() -> None:
    """Threads that run at the same time overlap, and each is shown by its name."""
    overlap, together = OverlapRecorder(), threading.Barrier(3, timeout=10)

    def body() -> None:
        with overlap.running():
            together.wait()

    with ThreadPoolExecutor(3, "robot") as pool:
        for done in [pool.submit(body) for _ in range(3)]:
            done.result()
    overlap.assert_never_more_than(3)
    with pytest.raises(AssertionError, match="3 ran at once") as failure:
        overlap.assert_never_more_than(2)
    assert {f"robot_{n}" in str(failure.value) for n in range(3)} == {True}


async def test_recorder_in_activities() -> None:
    """An activity is shown with its workflow, type and id."""
    overlap = OverlapRecorder()

    async def pick() -> None:
        with overlap.running():
            pass

    await ActivityEnvironment().run(pick)
    (interval,) = overlap.intervals()
    assert interval.who == "workflow test, activity unknown (test), attempt 1"


def test_a_body_that_fails_has_ended() -> None:
    """An error ends the interval and comes through."""
    overlap = OverlapRecorder()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), overlap.running():
            raise ZeroDivisionError
    overlap.assert_never_more_than(1)


def test_nothing_recorded_shows_nothing() -> None:
    """A test whose bodies did not run, or under another name, must not pass."""
    overlap = OverlapRecorder()
    with pytest.raises(AssertionError, match="did the bodies run"):
        overlap.assert_never_more_than(1)
    with overlap.running("north"):
        pass
    with pytest.raises(AssertionError, match="nothing was recorded for 'nrth'"):
        overlap.assert_never_more_than(1, "nrth")
