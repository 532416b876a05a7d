"""What the servers did, step by step, rebuilt from the audit."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .audit import Row
from .findings import Findings
from .state import BAND, Line, State


@dataclass(slots=True)
class Grant:
    """One grant, as the server made it."""

    owner: str
    token: float
    slot: float
    limit: int
    history: tuple[str, str, int]
    at: float
    call: str
    ended: str = ""
    """``released``, ``parked``, ``expired`` or ``forgotten``."""
    ended_at: float = 0.0
    ended_by: str = ""
    """The call during which that happened."""


@dataclass(slots=True)
class Step:
    """One row together with what was before it."""

    row: Row
    state: State
    owner: str
    waiter: str
    limit: int
    held: bool
    """Whether the owner was a live holder."""
    ticket: float | None
    """The place that the waiter had, and the one that a holder's grant had used up."""
    used: float | None
    shift: float
    """By how much the server's clock was found to have stepped back, in ms, negative."""
    ended: list[tuple[float, str]]
    """What ended since the row before: when, on the clients' clock, and the record of it."""
    changes: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    woken: set[str] = field(default_factory=set)
    granted: Grant | None = None
    rank: int = 0
    free: int = 0


@dataclass(slots=True)
class Lock:
    """All servers' histories of one lock."""

    tickets: set[float]
    states: dict[str, State] = field(default_factory=dict)
    current: str = ""
    grants: list[Grant] = field(default_factory=list)
    by_owner: dict[str, list[Grant]] = field(default_factory=lambda: defaultdict(list))
    regrants: list[Grant] = field(default_factory=list)
    """Second grants of one owner."""
    asker: dict[str, str] = field(default_factory=dict)
    """Who asked last on behalf of a waiter."""
    put_back_late: set[str] = field(default_factory=set)
    """Waiters whose place an attempt put back after a later attempt of the same activity had asked."""
    served_by: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    """In which history an owner, or a waiter, was served last."""


def known_locks(rows: Sequence[Row]) -> dict[str, Lock]:
    """The locks of a history, before anything has happened."""
    tickets: dict[str, set[float]] = defaultdict(set)
    for row in rows:
        tickets[row.lock].update(float(change[2]) for change in row.did if change[0] + change[1][0] == "+q")
        tickets[row.lock].update(score for name, score in (row.content or {}).items() if name[0] == "q")
    return {name: Lock(known) for name, known in tickets.items()}


def follow(lock: Lock, row: Row, findings: Findings) -> Step:
    """Let one row happen."""
    state = _state(lock, row, findings)
    before, now = state.now, _now(row, state)
    ended = [(state.at + (end - before) / 1000, member) for end, member in state.tick(now)]
    ask = row.ask
    owner, waiter = ask["owner"], ask["waiter"]
    used = state.records.get("w" + owner) if owner in state.live else None
    lock.served_by[owner] = lock.served_by[waiter] = state.history
    step = Step(
        row,
        state,
        owner,
        waiter,
        ask["limit"],
        held=owner in state.live,
        ticket=state.ticket(waiter),
        used=None if used is None else used - 3e13,
        shift=min(now - before, 0) if before else 0,
        ended=ended,
    )
    _claimant(step, free=ask["limit"] - len(state.live))
    for change in row.did:
        _apply(lock, step, change, findings)
    state.at = row.at
    if grant := step.granted:
        grant.token = state.records.get("t" + grant.owner, 0)
        grant.slot = state.records.get("s" + grant.owner, -1)
    if len(state.records) != row.after:
        findings.violate("audit", f"{len(state.records)} records known, {row.after} there", row.lock, row.at)
    return step


def _state(lock: Lock, row: Row, findings: Findings) -> State:
    """The lock as it was before the row: as this server left it, unless it tells otherwise."""
    known, latest = lock.states.get(row.server), lock.states.get(lock.current)
    lock.current = row.server
    content = row.content if row.before else {}
    if known and content in (None, known.records):
        state = known
        if len(known.records) != row.before:
            text = f"{row.before} records there, {len(known.records)} known: somebody is not audited"
            findings.violate("audit", text, row.lock, row.at)
    else:
        if content is None:
            findings.violate("audit", f"{row.before} records that nobody put there", row.lock, row.at)
        state = State(Line(lock.tickets), (row.server, row.process, len(lock.grants)))
        state.now, state.at = (latest.now, latest.at) if latest else (0, row.at)
        for member, score in (content or {}).items():
            state.put(member, score)
        if latest:
            _forget(lock, latest, state, row, findings)
        lock.states[row.server] = state
    if content and row.replid:
        state.taken_over = any(member[0] == "@" for member in content)
    return state


def _forget(lock: Lock, before: State, after: State, row: Row, findings: Findings) -> None:
    """Note which grants another server, or this one after it lost its data, does not know of."""
    findings.counts["histories begun anew"] += 1
    before.tick(max(before.now, _now(row, before)))
    for owner in before.live:
        if "h" + owner not in after.records and lock.by_owner.get(owner):
            lock.by_owner[owner][-1].ended = "forgotten"
            lock.by_owner[owner][-1].ended_at = row.at
            findings.counts["grants forgotten"] += 1


def _now(row: Row, state: State) -> float:
    """By which time the script judged."""
    for change in row.did:
        if change[:2] == ["+", "#n"]:
            return -4e15 - float(change[2])
    return state.now if row.us is None else max(row.us // 1000, state.now)


def _claimant(step: Step, free: int) -> None:
    """How many are before the one who asks; a newcomer comes behind all of its priority."""
    place = step.ticket
    if place is None:
        place = (step.row.ask.get("priority", 3) + 1) * BAND
    step.rank, step.free = step.state.line.before(place), free


def _apply(lock: Lock, step: Step, change: list[str], findings: Findings) -> None:
    how, member, *score = change
    state = step.state
    if how == "!":
        step.woken.add(member)
        return
    if how == "ttl":
        state.ttl = True
        return
    old = state.records.get(member)
    if how == "-":
        state.remove(member)
        if member[0] == "h" and old is not None:
            _note_end(lock, step, member[1:])
    else:
        if member[0] == "h" and old is None:
            _note_grant(lock, step, member[1:])
        state.put(member, float(score[0]))
    step.changes[member] = (step.changes.get(member, (old, None))[0], state.records.get(member))
    findings.counts["changes"] += 1


def _note_grant(lock: Lock, step: Step, owner: str) -> None:
    row = step.row
    step.granted = Grant(owner, 0, -1, step.limit, step.state.history, row.at, row.ask.get("call", ""))
    lock.grants.append(step.granted)
    lock.by_owner[owner].append(step.granted)


def _note_end(lock: Lock, step: Step, owner: str) -> None:
    elsewhere = any(owner in state.live for state in lock.states.values() if state is not step.state)
    if (grants := lock.by_owner.get(owner)) and not grants[-1].ended and not elsewhere:
        own = owner == step.owner and step.held
        ends: dict[str, Any] = {"release": "released", "park": "parked"}
        grants[-1].ended = ends.get(step.row.op, "expired") if own else "expired"
        grants[-1].ended_at, grants[-1].ended_by = step.row.at, step.row.ask.get("call", "")
