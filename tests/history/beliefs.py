"""What the clients believed, from their notes: who held what from when until when, and why it ended.

Judges what shows at a single owner: S5, S7 and S8 from the clients' side.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .client_log import Note
from .findings import Findings

MARGIN = 0.02
"""The part of a lease by which it has to end earlier here than at the server: clocks do not run alike."""
_ROUNDING = 0.002


@dataclass(slots=True)
class Call:
    """One request to the store."""

    name: str
    op: str
    owner: str
    asked: dict[str, Any]
    sent: float
    answer: dict[str, Any] | None = None
    """None if the process did not live to see it."""
    answered: float = math.inf

    @property
    def unclear(self) -> bool:
        """It may have happened or not."""
        return self.answer is None or "error" in self.answer


@dataclass(slots=True)
class Belief:
    """That an owner holds a lock."""

    start: float
    until: float
    """The end of the lease as the client knows it."""
    token: float
    slot: float
    deadline: float = math.inf
    end: float = math.inf
    why: str = ""
    """``given back``, ``lost``, ``run out`` or ``killed``."""
    reason: str = ""


@dataclass(slots=True)
class Owner:
    """One acquisition, as its client saw it."""

    name: str
    lock: str
    waiter: str
    limit: int
    process: int
    calls: list[Call] = field(default_factory=list)
    belief: Belief | None = None
    kept: bool = False
    """A worker's keeper held it; otherwise a test used the store by itself."""
    bodies: list[list[float]] = field(default_factory=list)
    told: float = math.inf

    def answered(self, op: str, *keys: str) -> list[Call]:
        """The calls of a kind that were answered, with these words in the answer."""
        return [
            call
            for call in self.calls
            if call.op == op and call.answer is not None and all(key in call.answer for key in keys)
        ]

    @property
    def left(self) -> list[Call]:
        """When it gave back, or left the line."""
        return [call for call in self.calls if call.op in ("release", "park")]


def believed(notes: Sequence[Note], deaths: dict[int, float], findings: Findings) -> dict[str, Owner]:
    """All owners with what they believed."""
    owners: dict[str, Owner] = {}
    calls: dict[str, Call] = {}
    own: dict[str, list[Note]] = {}
    for note in notes:
        if note.what == "call":
            owner = owners.setdefault(
                note.owner,
                Owner(note.owner, note.lock, note.more["waiter"], note.more["limit"], note.process),
            )
            call = calls[note.call] = Call(note.call, note.more["op"], note.owner, note.more, note.at)
            owner.calls.append(call)
        elif note.what == "answer" and note.call in calls:
            calls[note.call].answer, calls[note.call].answered = note.more, note.at
        if note.owner in owners:
            own.setdefault(note.owner, []).append(note)
    for name, owner in owners.items():
        _believe(owner, own[name], findings)
        if owner.belief:
            _end(owner, owner.belief, deaths.get(owner.process, math.inf))
            findings.counts["beliefs"] += 1
        findings.counts["unclear answers"] += sum(call.unclear for call in owner.calls)
    return owners


def _believe(owner: Owner, notes: list[Note], findings: Findings) -> None:
    owner.kept = any(note.what == "hold" for note in notes)
    if not owner.kept:
        owner.belief = _by_the_answers(owner)
    for note in notes:
        belief = owner.belief
        if note.what == "hold":
            _begin(owner, note, findings)
        elif note.what == "extend" and belief:
            if note.at > belief.until + _ROUNDING or belief.why == "lost":
                findings.violate("S7", f"{owner.name} went on after its end", owner.lock, note.at)
            _check_end(owner, "renew", note, findings)
            belief.until = note.more["until"]
        elif note.what == "lose" and belief and not belief.why:
            belief.end, belief.why, belief.reason = note.at, "lost", note.more["reason"]
        elif note.what == "told":
            owner.told = note.at
        elif note.what == "body":
            owner.bodies.append([note.at, math.inf])
        elif note.what == "body_end" and owner.bodies:
            owner.bodies[-1][1] = note.at


def _begin(owner: Owner, note: Note, findings: Findings) -> None:
    more = note.more
    if owner.belief:
        findings.violate("S7", f"{owner.name} holds it a second time", owner.lock, note.at)
    owner.belief = Belief(note.at, more["until"], more["token"], more["slot"], more["deadline"])
    _check_end(owner, "acquire", note, findings)
    if note.at > more["until"]:
        findings.violate("S8", f"{owner.name} began after its lease", owner.lock, note.at)
    granted = owner.answered("acquire", "token")
    if granted and granted[-1].answer and granted[-1].answer["token"] != more["token"]:
        findings.violate("S5", f"{owner.name} was told another token", owner.lock, note.at)


def _check_end(owner: Owner, op: str, note: Note, findings: Findings) -> None:
    """A lease counts from before its request was sent, and ends a margin earlier."""
    calls = owner.answered(op, "token" if op == "acquire" else "yes")
    known = [call for call in calls if call.answered <= note.at]
    latest = known[-1].sent + known[-1].asked["lease"] / 1000 * (1 - MARGIN) if known else -math.inf
    if note.more["until"] > latest + _ROUNDING:
        text = f"{owner.name} believes {note.more['until'] - latest:.3f} s longer than it may"
        findings.violate("S8", text, owner.lock, note.at)


def _by_the_answers(owner: Owner) -> Belief | None:
    """For who uses the store without a keeper: what it may believe."""
    belief: Belief | None = None
    for call in owner.calls:
        if call.unclear or call.answer is None:
            continue
        granted = call.op == "acquire" and "token" in call.answer
        renewed = call.op == "renew" and call.answer.get("yes")
        if not granted and not renewed:
            continue
        until = call.sent + call.asked["lease"] / 1000 * (1 - MARGIN)
        if belief and call.answered < belief.until:
            belief.until = max(until, belief.until)
        elif granted and call.answered < until:
            belief = Belief(call.answered, until, call.answer["token"], call.answer["slot"])
    return belief


def _end(owner: Owner, belief: Belief, died: float) -> None:
    gave_back = min((call.sent for call in owner.left), default=math.inf)
    refused = min(
        (call.answered for call in owner.answered("renew", "yes") if call.answer and not call.answer["yes"]),
        default=math.inf,
    )
    ends = [(gave_back, "given back"), (died, "killed"), (belief.until, "run out")]
    if belief.why == "lost":
        ends.append((belief.end, "lost"))
    elif not owner.kept:
        ends.append((refused, "lost"))
    belief.end, belief.why = min(ends)
