"""``lock-interceptor doctor``: the settings against the live Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.lease import printable
from lock_interceptor.ops.cli import BROKEN, OK, UNAVAILABLE
from lock_interceptor.ops.endings import carry_out
from lock_interceptor.ops.listing import Json
from lock_interceptor.ops.texts import make_console, print_json
from lock_interceptor.redis_store.checkup import Finding, Level, Report, examine
from lock_interceptor.settings import LockSettings

_MARKS: dict[Level, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "problem": ("PROBLEM", "bold red"),
    "unknown": ("unknown", "cyan"),
}
_NOUNS: dict[Level, str] = {
    "problem": "that keeps locks from working well",
    "warning": "to look at",
    "unknown": "could not be checked",
}
_STATUSES = {"ok": OK, "problems": BROKEN, "unreachable": UNAVAILABLE}


def doctor(
    *,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show each server's findings on their own.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the settings against the live Redis, and say what to do about what is wrong.

    Looks at the settings, the way to Redis, login and rights (each command that a lock needs is tried),
    eviction, memory, persistence, replicas, Sentinels or Cluster, and clocks; then takes a lock and gives it
    back. Changes nothing else. What it would need more rights for counts as unknown, not as wrong.
    """
    report = _examine()
    if as_json:
        print_json(_as_dict(report))
    else:
        _print(report, verbose=verbose)
    raise typer.Exit(_STATUSES[report.status])


def _examine() -> Report:
    try:
        settings = LockSettings()
    except LockConfigurationError as error:
        lines = [line.removeprefix("  - ") for line in str(error).splitlines() if line.startswith("  - ")]
        return Report([Finding("settings", "problem", line, "correct the variable") for line in lines])
    return carry_out(examine(settings))


def _as_dict(report: Report) -> dict[str, Any]:
    return {"status": report.status, "findings": [asdict(finding) for finding in report.findings]}


def _print(report: Report, *, verbose: bool) -> None:
    console = make_console()
    findings = report.findings if verbose else _together(report.findings)
    several = len({each.where for each in report.findings if each.where}) > 1
    grid = Table.grid(padding=(0, 2, 0, 0))
    for finding in findings:
        mark, style = _MARKS[finding.level]
        text = Text.assemble(
            (f"{finding.check}: ", "bold"),
            printable(finding.message),
            (f" ({printable(finding.where)})" if finding.where and several else "", "dim"),
        )
        grid.add_row(Text(mark, style), text)
        if finding.remedy:
            grid.add_row("", Text(f"→ {printable(finding.remedy)}", style))
    console.print(grid)
    counts = Counter(each.level for each in findings)
    said = [f"{counts[level]} {_NOUNS[level]}" for level in _NOUNS if counts[level]]
    if said and not counts["problem"]:
        said.insert(0, "no problem")
    console.print(Text(", ".join(said) or "all is well", style="bold"))


def _together(findings: Iterable[Finding]) -> list[Finding]:
    """What was found alike at several servers, once."""
    alike: dict[Finding, list[str]] = {}
    for finding in findings:
        alike.setdefault(replace(finding, where=""), []).append(finding.where)
    return [replace(finding, where=", ".join(filter(None, where))) for finding, where in alike.items()]
