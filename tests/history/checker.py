"""Evaluates every invariant over one history: S1 to S12 for safety, L1 to L10 for liveness.

S1   never more live holders than the limit             L1   a dead holder's slot is granted again in time
S2   never more believers than the limit                L2   a free slot and a waiter find each other
S3   never more bodies, but for a moment after a loss   L3   a dead waiter is in the way for its presence only
S4   tokens rise                                        L4   who keeps asking keeps its place
S5   one owner, one grant; no request executed twice    L5   after a fault things go on in time
S6   nobody changes what is another one's               L6   no lease is lost without a reason
S7   what has ended does not come back                  L7   what was had is given back, once
S8   no belief beyond lease minus margin                L8   who stops waiting leaves the line
S9   first come, first served                           L9   at the end nothing is left
S10  a changed limit evicts nobody and admits nobody    L10  nobody starves
S11  locks do not touch each other
S12  slots are unique, and tokens fence
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .audit import Row
from .beliefs import Owner, believed
from .client_log import Note
from .expectations import BETWEEN, Expectations, Fault, deaths, faults
from .findings import Findings, Violation
from .judge import judge
from .overlaps import check_beliefs, check_bodies
from .pace import Pace
from .promises import (
    Outcome,
    check_answers,
    check_leaving,
    check_losses,
    check_names,
    check_regrants,
    check_resources,
    check_rest,
    check_tokens,
    outcome,
)
from .served import Lock, follow, known_locks


@dataclass(frozen=True)
class Report:
    """The result of a check."""

    counts: Mapping[str, float]
    violations: Sequence[Violation]
    unmet: Sequence[str]
    """Expectations that the run did not meet."""
    details: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing is violated and the run exercised enough."""
        return not self.violations and not self.unmet

    @property
    def rules(self) -> set[str]:
        """Which invariants are violated."""
        return {violation.rule for violation in self.violations}

    def __str__(self) -> str:
        counts = dict(self.counts)
        first = [
            f"grants {counts.pop('grants', 0)}",
            f"most at once {counts.pop('most at once', 0)} of {counts.pop('limit', 0)}",
            f"lost {counts.pop('lost', 0)}",
            f"explained {counts.pop('explained', 0)}",
            f"violations {len(self.violations)}",
        ]
        rest = [f"{name} {value}" for name, value in sorted(counts.items()) if value]
        lines = ["history: " + ", ".join(first), "         " + ", ".join(rest)]
        lines += [f"expectation not met: {what}" for what in self.unmet]
        return "\n".join([*lines, self.details] if self.details else lines)


def check(
    rows: Sequence[Row],
    notes: Sequence[Note],
    expectations: Expectations,
    leftovers: Mapping[str, int] | None = None,
) -> Report:
    """Check a history; `rows` in the order of the servers, `notes` in the order of time. O(n log n)."""
    findings = Findings()
    findings.counts.update({"grants": 0, "lost": 0, "explained": 0, BETWEEN: 0})
    broken, died = faults(notes), deaths(notes)
    findings.counts["faults"] = len(broken) + len(died)
    owners = believed(notes, died, findings)
    _set_times(rows, owners)
    end = max((note.at for note in notes), default=0.0)

    locks, outcomes = known_locks(rows), dict[str, Outcome]()
    pace = Pace(expectations, broken, findings)
    for row in rows:
        step = follow(locks[row.lock], row, findings)
        judge(locks, step, findings)
        pace.follow(locks[row.lock], step)
        if call := row.ask.get("call"):
            outcomes[call] = outcome(step, outcomes.get(call))
    waiting = {
        owner.name: owner.process
        for owner in owners.values()
        if owner.process not in died and not owner.left and not owner.belief
    }
    pace.finish(locks, end, max((row.ask.get("lease", 0) for row in rows), default=0) / 1000, waiting)

    check_answers(owners, outcomes, findings)
    check_tokens(owners, findings)
    check_regrants(owners, locks, findings)
    check_beliefs(owners, locks, expectations, findings)
    ends = {owner.process: died.get(owner.process, end) for owner in owners.values()}
    check_bodies(owners, locks, broken, expectations, findings, ends)
    check_losses(owners, locks, broken, expectations, end, findings)
    check_names(notes, findings)
    check_resources(notes, findings)
    if expectations.tidy:
        check_leaving(owners, died, findings)
        dead = {owner.name for owner in owners.values() if owner.process in died or _too_late(owner, broken)}
        check_rest(locks, leftovers or {}, dead, end, findings)
    _count(rows, locks, owners, findings)
    findings.violations.sort(key=lambda violation: violation.at)
    unmet = expectations.unmet(findings.counts)
    return Report(findings.counts, findings.violations, unmet, findings.explain(rows, notes))


def _too_late(owner: Owner, broken: Sequence[Fault]) -> bool:
    """Whether a server that was in trouble may have taken up a request when its client was gone for good."""
    return any(
        call.op == "acquire"
        and call.unclear
        and any(
            not fault.process and fault.start < call.answered and fault.end > call.sent for fault in broken
        )
        for call in owner.calls
    )


def _set_times(rows: Sequence[Row], owners: Mapping[str, Owner]) -> None:
    """A row is not older than its request, and not older than the row before it on its server."""
    sent = {call.name: call.sent for owner in owners.values() for call in owner.calls}
    latest: dict[str, float] = {}
    for row in rows:
        row.at = max(latest.get(row.server, -math.inf), sent.get(row.ask.get("call", ""), row.at))
        latest[row.server] = row.at


def _count(
    rows: Sequence[Row], locks: Mapping[str, Lock], owners: Mapping[str, Owner], findings: Findings
) -> None:
    findings.counts["locks"] = len(locks)
    findings.counts["servers"] = len({(row.server, row.process) for row in rows})
    findings.counts["clients"] = len({owner.process for owner in owners.values()})
