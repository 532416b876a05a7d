"""``lock-interceptor list``: all locks that are in use, the busiest first."""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.text import Text

from lock_interceptor.lease import printable
from lock_interceptor.ops.cli import UNAVAILABLE
from lock_interceptor.ops.endings import carry_out, ending, read_settings
from lock_interceptor.ops.locating import matching
from lock_interceptor.ops.texts import (
    counts_as_dict,
    duration,
    held_of,
    locks,
    make_console,
    make_table,
    print_json,
    say,
)
from lock_interceptor.redis_store.survey import LockCounts, LockSurvey
from lock_interceptor.store import LockId

MOST_LOCKS = 200_000
"""Locks to look at before the search is given up: a minute or two."""
_QUIET = 1.0
"""Seconds before progress is told."""

Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="Only locks with this name or label; * and ? are wildcards."),
]
App = Annotated[
    str | None, typer.Option("--app", metavar="NAME", help="Application; by default APPLICATION_NAME.")
]
All = Annotated[bool, typer.Option("--all", help="The locks of all applications.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(slots=True)
class Overview:
    """The busiest locks, and sums over all that were found."""

    busiest: list[LockCounts] = field(default_factory=list)
    locks: int = 0
    """In use."""
    idle: int = 0
    """Known yet, though nobody holds or waits."""
    held: int = 0
    waiting: int = 0
    complete: bool = True
    """Whether all locks were looked at."""
    unreachable: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The JSON; the names are API."""
        return {
            "locks": [counts_as_dict(counts) for counts in self.busiest],
            "total": {"locks": self.locks, "idle": self.idle, "held": self.held, "waiting": self.waiting},
            "complete": self.complete and not self.unreachable,
            "unreachable": self.unreachable,
        }


async def take_stock(
    survey: LockSurvey,
    application: str | None,
    wanted: Callable[[LockId], bool],
    *,
    limit: int,
    idle: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Overview:
    """Look at all locks that are wanted, and keep as many as asked for: those with most in line.

    Raises:
        LockStoreUnavailable: no answer in time.
        LockConfigurationError: Redis refuses.
    """
    overview, done = Overview(), 0
    async with aclosing(survey.find(application, wanted)) as batches:
        async for batch in batches:
            busy = [counts for counts in batch if counts.held or counts.waiting]
            overview.locks += len(busy)
            overview.idle += len(batch) - len(busy)
            overview.held += sum(counts.held for counts in busy)
            overview.waiting += sum(counts.waiting for counts in busy)
            overview.busiest += batch if idle else busy
            if len(overview.busiest) > 2 * limit + 1000:
                overview.busiest = heapq.nsmallest(limit, overview.busiest, key=_by_business)
            done += len(batch)
            progress(done)
            if done >= MOST_LOCKS:
                overview.complete = False
                break
    overview.busiest = heapq.nsmallest(limit, overview.busiest, key=_by_business)
    overview.unreachable = survey.unreachable
    return overview


def _by_business(counts: LockCounts) -> tuple[int, int, str, str]:
    return (-counts.waiting, -counts.held, str(counts.lock), counts.redis_key)


@contextmanager
def telling_progress() -> Iterator[Callable[[int], None]]:
    """What to call with the number of locks seen; it is told on standard error when it takes long."""
    console, started = make_console(stderr=True), time.monotonic()
    with contextlib.ExitStack() as stack:
        status = console.status("")
        told = started

        def progress(done: int) -> None:
            nonlocal told
            now = time.monotonic()
            if now - started < _QUIET:
                return
            if console.is_terminal:
                if told == started:
                    stack.enter_context(status)
                status.update(f"looked at {done:,} locks")
                told = now
            elif now - told > 5 * _QUIET:
                say(console, f"looked at {done:,} locks")
                told = now

        yield progress


def list_locks(
    name: Name = None,
    *,
    app: App = None,
    everything: All = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many locks to show.")] = 50,
    idle: Annotated[bool, typer.Option("--idle", help="Show locks that nobody uses, too.")] = False,
    as_json: Json = False,
) -> None:
    """List the locks that are in use, those with the longest lines first.

    Reads Redis in small steps, so it may be used in production with tens of thousands of locks. The Redis
    user needs the command SCAN besides those of a worker.
    """
    settings = read_settings(app)
    application = None if everything else settings.application_name

    async def work() -> Overview:
        survey = LockSurvey(settings)
        try:
            with telling_progress() as progress:
                return await take_stock(
                    survey, application, matching(name), limit=limit, idle=idle, progress=progress
                )
        finally:
            await survey.close()

    overview = carry_out(work())
    if as_json:
        print_json(overview.as_dict())
    else:
        _print(overview, name, application)
    if overview.unreachable:
        nodes = ", ".join(overview.unreachable)
        raise ending(f"no answer from {nodes}: the locks there are missing", UNAVAILABLE)


def _print(overview: Overview, name: str | None, application: str | None) -> None:
    console = make_console()
    if overview.busiest:
        apps = ["application"] if application is None else []
        table = make_table(
            *apps, "lock", "held", "waiting", "parked", "oldest wait", "longest hold", fold="lock"
        )
        for counts in overview.busiest:
            table.add_row(
                *[Text(printable(counts.lock.application)) for _ in apps],
                Text(str(counts.lock), style="bold" if counts.waiting else ""),
                held_of(counts.held, counts.limit),
                Text(str(counts.waiting), style="yellow" if counts.waiting else "dim"),
                str(max(counts.waiting - counts.present, 0)),
                duration(counts.longest_wait),
                duration(counts.longest_hold),
            )
        console.print(table)
    where = "in any application" if application is None else f"in application {application}"
    named = "" if name is None else f" named {name}"
    idle = f", and {overview.idle:,} idle" if overview.idle else ""
    shown = len(overview.busiest)
    rest = f"; the first {shown:,} are shown, --limit shows more" if shown < overview.locks else ""
    say(
        console,
        f"{locks(overview.locks)}{named} in use {where}{idle}: {overview.held:,} held, "
        f"{overview.waiting:,} waiting{rest}",
        "dim",
    )
    if not overview.complete:
        say(console, f"There are more than {MOST_LOCKS:,}: name some of them to see the others.", "yellow")
