"""Who ran when, and whether ever more than allowed: `OverlapRecorder` and `assert_never_more_than`."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from temporalio import activity

from lock_interceptor.lease import clock

MOST_SHOWN = 20


class Interval(NamedTuple):
    """From when until when somebody ran, in seconds of one clock. The end does not belong to it."""

    start: float
    end: float
    who: str = ""


def assert_never_more_than(limit: int, intervals: Iterable[Interval]) -> None:
    """Check that at no moment more of the intervals overlap than the limit allows.

    One that begins when another one ends does not overlap it.

    Raises:
        AssertionError: more did; the message shows which ones, and when.
    """
    everything = list(intervals)
    worst = _at_the_worst(everything)
    if len(worst) > limit:
        raise AssertionError(_explain(limit, worst, min(interval.start for interval in everything)))


class OverlapRecorder:
    """Remembers who runs when; for the bodies of activities under test, in coroutines and threads.

        overlap = OverlapRecorder()
        ...
        with overlap.running("eu"):
            ...                                 # the body
        ...
        overlap.assert_never_more_than(3)

    It does not see into the processes of a process pool: collect their times as `Interval` and call
    `assert_never_more_than`.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._began: dict[object, tuple[str, float, str]] = {}
        self._ended: list[tuple[str, Interval]] = []

    @contextlib.contextmanager
    def running(self, lock: str = "") -> Iterator[None]:
        """While entered, the body counts as running.

        Args:
            lock: under which lock; bodies of different locks, such as of two keys, may overlap.
        """
        run = object()
        with self._mutex:
            self._began[run] = (lock, clock(), _who())
        try:
            yield
        finally:
            with self._mutex:
                lock, start, who = self._began.pop(run)
                self._ended.append((lock, Interval(start, clock(), who)))

    def intervals(self, lock: str | None = None) -> list[Interval]:
        """What was recorded for one lock or all, oldest first; what still runs has no end (infinite)."""
        with self._mutex:
            everything = [
                *self._ended,
                *((name, Interval(start, math.inf, who)) for name, start, who in self._began.values()),
            ]
        return sorted(interval for name, interval in everything if lock is None or name == lock)

    def most(self, lock: str | None = None) -> int:
        """How many of one lock, or in all, ran at once at the most; to check that a limit is also used."""
        return len(_at_the_worst(self.intervals(lock)))

    def assert_never_more_than(self, limit: int, lock: str | None = None) -> None:
        """Check that never more than `limit` ran at once: of this lock or, by default, of any one lock.

        Raises:
            AssertionError: more did; the message shows which ones and when. Or nothing was recorded.
        """
        with self._mutex:
            names = {name for name, _ in self._ended} | {name for name, _, _ in self._began.values()}
        if not names or (lock is not None and lock not in names):
            where = "" if lock is None else f" for {lock!r}"
            raise AssertionError(f"nothing was recorded{where}, so this shows nothing: did the bodies run?")
        for name in sorted(names) if lock is None else [lock]:
            try:
                assert_never_more_than(limit, self.intervals(name))
            except AssertionError as error:
                if not name:
                    raise
                raise AssertionError(f"lock {name}: {error}") from None


def _at_the_worst(intervals: Iterable[Interval]) -> list[Interval]:
    """Those that overlap at the first of the moments at which most do."""
    running: list[Interval] = []
    worst: list[Interval] = []
    for interval in sorted(intervals):
        running = [other for other in running if other.end > interval.start]
        running.append(interval)
        if len(running) > len(worst):
            worst = list(running)
    return worst


def _explain(limit: int, worst: list[Interval], begin: float) -> str:
    at = max(interval.start for interval in worst) - begin
    lines = [
        f"{len(worst)} ran at once, at most {limit} may; {at:.3f} s after the first one began there were:"
    ]
    for interval in worst[:MOST_SHOWN]:
        end = "on, still running" if interval.end == math.inf else f"to {interval.end - begin:.3f} s"
        lines.append(f"  {interval.who or 'somebody'}: from {interval.start - begin:.3f} s {end}")
    if len(worst) > MOST_SHOWN:
        lines.append(f"  and {len(worst) - MOST_SHOWN} more")
    return "\n".join(lines)


def _who() -> str:
    """The activity that runs here or, outside of any, the task or thread."""
    if activity.in_activity():
        info = activity.info()
        where = f"workflow {info.workflow_id}, " if info.workflow_id else ""
        return f"{where}activity {info.activity_type} ({info.activity_id}), attempt {info.attempt}"
    with contextlib.suppress(RuntimeError):  # no loop runs in this thread
        if task := asyncio.current_task():
            return task.get_name()
    return threading.current_thread().name
