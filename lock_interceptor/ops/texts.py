"""How numbers, times and people are shown, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lock_interceptor.lease import printable
from lock_interceptor.redis_store.survey import LockCounts
from lock_interceptor.store import Party

PLAIN_WIDTH = 160
_BARS = "▁▂▃▄▅▆▇█"


def make_console(*, stderr: bool = False) -> Console:
    """A console that is wide enough for tables where there is no terminal."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH)


def make_table(*columns: str, fold: str = "") -> Table:
    """A plain table; numbers to the right, and the column `fold` takes what room there is."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for column in columns:
        wide = column == fold
        table.add_column(
            column, justify="left" if wide else "right", overflow="fold", no_wrap=not wide, ratio=int(wide)
        )
    return table


def say(console: Console, text: str, style: str = "") -> None:
    """Print text as it is, made harmless."""
    console.print(Text("\n".join(printable(line) for line in text.splitlines()), style=style))


def duration(value: timedelta | None) -> str:
    """As people say it, in at most two units."""
    if value is None:
        return "-"
    seconds = max(value.total_seconds(), 0.0)
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def seconds(value: timedelta | None) -> float | None:
    """For JSON."""
    return None if value is None else round(value.total_seconds(), 3)


def locks(count: int) -> str:
    """So many locks."""
    return "1 lock" if count == 1 else f"{count:,} locks"


def held_of(held: int, limit: int | None) -> str:
    """How many hold it and, if that is known, how many may."""
    return str(held) if limit is None else f"{held} of {limit}"


def who(party: Party) -> str:
    """All that is known of somebody, on one line."""
    if not party.activity and not party.workflow:
        return "unknown"
    kind = f" ({party.workflow_type})" if party.workflow_type else ""
    where = f"workflow {party.workflow}{kind}, " if party.workflow else ""
    what = f"activity {party.activity} ({party.activity_id}), attempt {party.attempt}"
    return f"{where}{what}" + (f", worker {party.worker}" if party.worker else "")


def sparkline(values: Sequence[int], width: int, most: int = 0) -> str:
    """The last values as bars, the newest at the right, empty where there is none yet."""
    shown = list(values)[-width:]
    top = max(most, *shown, 1) if shown else 1
    bars = "".join(_BARS[-(-min(value, top) * (len(_BARS) - 1) // top)] for value in shown)
    return bars.rjust(width)


def counts_as_dict(counts: LockCounts) -> dict[str, Any]:
    """A lock in JSON; the names are API."""
    lock = counts.lock
    return {
        "lock": str(lock),
        "application": lock.application,
        "name": lock.name,
        "key": lock.key,
        "redis_key": counts.redis_key,
        "held": counts.held,
        "limit": counts.limit,
        "waiting": counts.waiting,
        "parked": max(counts.waiting - counts.present, 0),
        "oldest_wait_seconds": seconds(counts.longest_wait),
        "longest_hold_seconds": seconds(counts.longest_hold),
        "usual_hold_seconds": seconds(counts.mean_hold),
        "settling_seconds": seconds(counts.settling),
    }


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print JSON: control characters of whatever was chosen by somebody come out escaped."""
    typer.echo(json.dumps(value, indent=indent))
