"""What a check found: counts, and violations with what happened around them."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .audit import Row
from .client_log import Note

_EXPLAINED, _SHOWN, _AROUND = 5, 25, 4


@dataclass(frozen=True)
class Violation:
    """One broken invariant."""

    rule: str
    """S1 to S12, L1 to L10; or ``audit`` when the history itself is not whole."""
    text: str
    lock: str
    at: float


@dataclass
class Findings:
    """Collects counts and violations."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def violate(self, rule: str, text: str, lock: str, at: float) -> None:
        """An invariant is broken."""
        self.violations.append(Violation(rule, text, lock, at))

    def most(self, name: str, value: float) -> None:
        """Keep the highest."""
        self.counts[name] = max(self.counts[name], value)  # type: ignore[assignment] - a Counter of numbers

    def explain(self, rows: Sequence[Row], notes: Sequence[Note]) -> str:
        """The violations, the first ones with the events around them."""
        text = []
        for number, found in enumerate(self.violations[:_SHOWN]):
            text.append(f"{found.rule} of {found.lock} at {found.at:.3f}: {found.text}")
            if number < _EXPLAINED:
                text += _around(found, rows, notes)
        return "\n".join(text)


def _around(found: Violation, rows: Sequence[Row], notes: Sequence[Note]) -> list[str]:
    owners = {row.ask["owner"] for row in rows if row.lock == found.lock}
    lines = [(row.at, 1, _show_row(row)) for row in rows if row.lock == found.lock]
    lines += [
        (note.at, 0, _show_note(note))
        for note in notes
        if note.lock == found.lock or note.owner in owners or note.what in ("fault", "healed", "killed")
    ]
    lines.sort(key=lambda line: line[:2])
    here = sum(at <= found.at for at, *_ in lines)
    return [f"    {at:.3f}  {text}" for at, _, text in lines[max(here - 2 * _AROUND, 0) : here + _AROUND]]


def _show_row(row: Row) -> str:
    did = " ".join("".join(change[:2]) + "=".join(["", *change[2:]]) for change in row.did)
    who = f"{row.ask.get('call', '')} {row.ask['owner'][:12]}"
    return f"server {row.process} {row.op} ({who}, limit {row.ask['limit']}): {did} {row.error}"


def _show_note(note: Note) -> str:
    more = json.dumps(note.more) if note.more else ""
    return f"client {note.process} {note.what} {note.call} {note.owner[:12]} {more}"
