"""``lock-interceptor show``: one lock, who holds it, and who waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lock_interceptor.lease import printable
from lock_interceptor.ops.endings import carry_out, read_settings
from lock_interceptor.ops.listing import App, Json
from lock_interceptor.ops.locating import locate
from lock_interceptor.ops.texts import (
    counts_as_dict,
    duration,
    held_of,
    make_console,
    make_table,
    print_json,
    say,
    seconds,
    who,
)
from lock_interceptor.redis_store.survey import LockCounts, LockDetails, LockSurvey
from lock_interceptor.settings import LockSettings
from lock_interceptor.store import HolderState, WaiterState, Waiting
from lock_interceptor.waiting import expected_wait

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The lock as list shows it: name or name[key], or its Redis key."),
]
Key = Annotated[str | None, typer.Option("--key", help="The lock's key, where name[key] may be misread.")]


@dataclass(frozen=True, slots=True)
class Place:
    """Somebody in line."""

    number: int
    waiter: WaiterState
    expected: timedelta | None
    """About how long it has to wait yet; None if nobody knows how long holders take."""


def places(details: LockDetails) -> list[Place]:
    """The line, as far as it was asked for, with what each may expect."""
    counts, state, line = details.counts, details.state, []
    for ahead, waiter in enumerate(state.waiters):
        asked = Waiting(
            place=ahead + 1,
            ahead=ahead,
            held=len(state.holders),
            mean_hold=counts.mean_hold,
            settling=counts.settling,
        )
        wait = expected_wait(asked, assumed_limit(details))
        line.append(Place(ahead + 1, waiter, None if wait is None else timedelta(seconds=wait)))
    return line


def assumed_limit(details: LockDetails) -> int:
    """The limit or, where nobody has noted it, the smallest that it can be."""
    highest = max((holder.slot for holder in details.state.holders), default=0)
    return details.counts.limit or highest + 1


def show(
    name: Name,
    *,
    key: Key = None,
    app: App = None,
    waiters: Annotated[int, typer.Option(min=0, max=10_000, help="How many of those in line to show.")] = 20,
    as_json: Json = False,
) -> None:
    """Show who holds a lock and who waits for it, in order.

    Those in line are hot (in a worker, woken when it is their turn) or parked (between two attempts; their
    place is kept). What they may expect is an estimate by how long holders have been taking.
    """
    settings = read_settings(app)
    details = carry_out(look(settings, name, key, waiters))
    if as_json:
        print_json(_as_dict(details))
    else:
        _print(details)


async def look(settings: LockSettings, name: str, key: str | None, waiters: int) -> LockDetails:
    """Find the lock that is meant; ends the command if there is none."""
    survey = LockSurvey(settings)
    try:
        return await locate(survey, settings, name, key, waiters=waiters)
    finally:
        await survey.close()


def _as_dict(details: LockDetails) -> dict[str, Any]:
    line = [
        {
            "place": place.number,
            "state": "hot" if place.waiter.present else "parked",
            "expected_wait_seconds": seconds(place.expected),
            **place.waiter.party.as_dict(),
        }
        for place in places(details)
    ]
    return {
        **counts_as_dict(details.counts),
        "holders": [holder_as_dict(each) for each in details.state.holders],
        "line": line,
    }


def holder_as_dict(holder: HolderState) -> dict[str, Any]:
    """A holder in JSON; the names are API."""
    return {
        "slot": holder.slot,
        "token": holder.token,
        "held_seconds": seconds(holder.held_for),
        "lease_left_seconds": seconds(holder.lease_left),
        **holder.party.as_dict(),
    }


def _print(details: LockDetails) -> None:
    console, counts, state = make_console(), details.counts, details.state
    title = Text.assemble((str(counts.lock), "bold"), (f"  in {printable(counts.lock.application)}", "dim"))
    console.print(title)
    say(console, _summary(counts, len(state.holders), state.waiting))
    if state.holders:
        console.print(_holders_table(state.holders))
    if state.waiters:
        table = make_table("place", "expected", "state", "waiting", fold="waiting")
        for place in places(details):
            hot = place.waiter.present
            table.add_row(
                str(place.number),
                "-" if place.expected is None else f"~{duration(place.expected)}",
                Text("hot" if hot else "parked", style="yellow" if hot else "dim"),
                Text(who(place.waiter.party)),
            )
        console.print(table)
    _print_notes(console, details)


def _summary(counts: LockCounts, held: int, waiting: int) -> str:
    usual = "" if counts.mean_hold is None else f"; a holder usually takes {duration(counts.mean_hold)}"
    present = min(counts.present, waiting)
    return f"{held_of(held, counts.limit)} held, {waiting:,} waiting ({present:,} of them hot){usual}"


def _print_notes(console: Console, details: LockDetails) -> None:
    counts, state = details.counts, details.state
    if counts.settling is not None:
        say(
            console,
            f"Nothing is granted for another {duration(counts.settling)}: Redis has failed over or begun "
            "anew, and may have forgotten a holder.",
            "yellow",
        )
    if state.waiting > len(state.waiters):
        say(console, f"{state.waiting - len(state.waiters):,} more in line; --waiters shows them", "dim")
    if state.waiters and counts.limit is None and counts.mean_hold is not None:
        say(
            console,
            f"What they expect is for a limit of {assumed_limit(details)}, or less if it is higher",
            "dim",
        )


def _holders_table(holders: Sequence[HolderState]) -> Table:
    table = make_table("slot", "token", "since", "lease left", "held by", fold="held by")
    for holder in holders:
        table.add_row(
            str(holder.slot),
            str(holder.token),
            duration(holder.held_for),
            duration(holder.lease_left),
            Text(who(holder.party)),
        )
    return table
