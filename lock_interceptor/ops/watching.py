"""``lock-interceptor watch``: the busiest locks, again and again, with a small history."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from itertools import count as counting
from typing import Annotated, Protocol

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from lock_interceptor.errors import LockStoreUnavailable
from lock_interceptor.lease import printable
from lock_interceptor.ops.endings import carry_out, read_settings
from lock_interceptor.ops.listing import All, App, Json, Name, Overview, take_stock
from lock_interceptor.ops.locating import matching
from lock_interceptor.ops.texts import (
    duration,
    held_of,
    locks,
    make_console,
    make_table,
    print_json,
    sparkline,
)
from lock_interceptor.redis_store.survey import LockSurvey
from lock_interceptor.store import LockId

HISTORY = 60
"""Looks that are remembered of each lock that is shown."""
_WIDE = 100
"""Columns of a terminal from which on the history is long."""
_NAMED = 3
"""Locks that a plain line names."""


class Lens(Protocol):
    """Where a look is shown."""

    def show(self, overview: Overview, problem: str) -> None:
        """Show how things stand, or that there was no answer and things stood so before."""


class PlainLens:
    """A line for each look: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, overview: Overview, problem: str) -> None:
        """See `Lens`."""
        if problem:
            text = problem
        else:
            busiest = ", ".join(
                f"{counts.lock} {held_of(counts.held, counts.limit)} held {counts.waiting} waiting"
                for counts in overview.busiest[:_NAMED]
            )
            text = f"{_sums(overview)}{': ' if busiest else ''}{busiest}"
        line = printable(f"{datetime.now():%H:%M:%S}  {text}")  # noqa: DTZ005 - the reader's own time
        self._console.print(line, soft_wrap=True, markup=False)


class JsonLens:
    """A JSON object on a line for each look, as ``list --json`` prints it, with its time."""

    def show(self, overview: Overview, problem: str) -> None:
        """See `Lens`."""
        print_json({"time": time.time(), "problem": problem or None, **overview.as_dict()}, indent=None)


class LiveLens:
    """A table that is drawn anew, with the history of each lock in it."""

    def __init__(self, console: Console, live: Live, interval: float) -> None:
        self._console = console
        self._live = live
        self._interval = interval
        self._histories: dict[str, deque[tuple[int, int]]] = {}

    def show(self, overview: Overview, problem: str) -> None:
        """See `Lens`."""
        if not problem:
            self._remember(overview)
        width = self._console.width
        bars = 20 if width >= _WIDE else 8
        table = make_table("lock", "held", "", "waiting", " ", "oldest", "longest", fold="lock")
        for counts in overview.busiest[: max(self._console.height - 6, 1)]:
            history = self._histories.get(counts.redis_key, ())
            table.add_row(
                Text(str(counts.lock), style="bold", overflow="ellipsis", no_wrap=True),
                held_of(counts.held, counts.limit),
                Text(sparkline([held for held, _ in history], bars, counts.limit or 0), style="green"),
                str(counts.waiting),
                Text(sparkline([waiting for _, waiting in history], bars), style="yellow"),
                duration(counts.longest_wait),
                duration(counts.longest_hold),
            )
        clock = f"{datetime.now():%H:%M:%S}"  # noqa: DTZ005 - the reader's own time
        head = Text.assemble(
            (f"{clock}  {_sums(overview)}", "bold"), (f"  every {self._interval:g} s, Ctrl-C ends", "dim")
        )
        head.no_wrap, head.overflow = True, "ellipsis"
        trouble = [Text(printable(problem), style="bold red")] if problem else []
        self._live.update(Group(head, *trouble, table), refresh=True)

    def _remember(self, overview: Overview) -> None:
        """Add to the histories of those that are shown now, and forget the others."""
        kept = {}
        for counts in overview.busiest:
            history = self._histories.get(counts.redis_key) or deque(maxlen=HISTORY)
            history.append((counts.held, counts.waiting))
            kept[counts.redis_key] = history
        self._histories = kept


def _sums(overview: Overview) -> str:
    missing = f", no answer from {', '.join(overview.unreachable)}" if overview.unreachable else ""
    return f"{locks(overview.locks)}, {overview.held:,} held, {overview.waiting:,} waiting{missing}"


def watch(
    name: Name = None,
    *,
    app: App = None,
    everything: All = False,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many locks to show.")] = 15,
    interval: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds from look to look.")] = 2.0,
    looks: Annotated[int, typer.Option("--count", min=0, help="End after so many looks; 0 is never.")] = 0,
    as_json: Json = False,
) -> None:
    """Watch the busiest locks, with a small history of how many hold and wait, until Ctrl-C.

    Where there is no terminal it prints a line for each look. With tens of thousands of locks it looks less
    often than asked for, so that it spends no more than half of the time looking.
    """
    settings = read_settings(app)
    application = None if everything else settings.application_name
    console = make_console()

    async def work() -> None:
        survey = LockSurvey(settings)
        try:
            with contextlib.ExitStack() as stack:
                lens: Lens = JsonLens() if as_json else PlainLens(console)
                if console.is_terminal and not as_json:
                    live = stack.enter_context(Live(console=console, auto_refresh=False))
                    lens = LiveLens(console, live, interval)
                await _look_on(
                    survey,
                    application=application,
                    wanted=matching(name),
                    lens=lens,
                    limit=limit,
                    interval=interval,
                    looks=looks,
                )
        finally:
            await survey.close()

    carry_out(work())


async def _look_on(
    survey: LockSurvey,
    *,
    application: str | None,
    wanted: Callable[[LockId], bool],
    lens: Lens,
    limit: int,
    interval: float,
    looks: int,
) -> None:
    overview = Overview()
    for look in counting(1):
        started = time.monotonic()
        try:
            overview = await take_stock(survey, application, wanted, limit=limit)
        except LockStoreUnavailable as error:
            if look == 1:
                raise  # it never worked: nothing to go on with
            lens.show(overview, str(error))
        else:
            lens.show(overview, "")
        if look == looks:
            return
        took = time.monotonic() - started
        await asyncio.sleep(max(interval - took, took))
