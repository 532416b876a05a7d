"""Whether each step of the servers was right: S1, S4 to S7, S9 to S12, and what of L2, L4, L8 shows there."""

import math
from collections.abc import Callable, Iterator

from .findings import Findings
from .served import Lock, Step

BACK_MS = 1000
"""A clock that is less behind than this is taken to stand still."""
_HOLDERS, _WAITERS = "htsw", "qcpk"


def judge(locks: dict[str, Lock], step: Step, findings: Findings) -> None:
    """Judge one step; to be called before the next one is made."""
    lock = locks[step.row.lock]
    for rule in _RULES:
        for name, text in rule(lock, step):
            findings.violate(name, text, step.row.lock, step.row.at)
    _count(lock, step, findings)
    if step.granted:
        step.state.limit = step.limit
    if step.row.op == "acquire":
        lock.asker[step.waiter] = step.owner
        lock.put_back_late.discard(step.waiter)
    elif step.row.op == "park" and lock.asker.get(step.waiter, step.owner) != step.owner:
        lock.put_back_late.add(step.waiter)


Rule = Callable[[Lock, Step], Iterator[tuple[str, str]]]


def _the_clock(lock: Lock, step: Step) -> Iterator[tuple[str, str]]:
    us, state = step.row.us, step.state
    if us is None or not state.now:
        return
    ahead = state.now - us // 1000
    if not 0 <= ahead <= BACK_MS:
        yield "S1", f"judged by a time {ahead} ms ahead of the server's clock"


def _the_limit(lock: Lock, step: Step) -> Iterator[tuple[str, str]]:
    live, grant = len(step.state.live), step.granted
    if grant and live > step.limit:
        rule = "S10" if step.state.limit not in (0, step.limit) else "S1"
        yield rule, f"granted as number {live} of {step.limit}"
    elif step.state.limit and live > step.state.limit and not grant:
        yield "S1", f"{live} hold what at most {step.state.limit} may"


def _the_token(lock: Lock, step: Step) -> Iterator[tuple[str, str]]:
    grant = step.granted
    if not grant:
        return
    last = lock.grants[-2].token if len(lock.grants) > 1 else 0
    if grant.token <= last:
        yield "S4", f"token {grant.token:.0f} after {last:.0f}"
    if grant.slot < 0 or grant.slot >= step.limit:
        yield "S12", f"slot {grant.slot:.0f} of {step.limit}"
    taken = [owner for owner in step.state.live if step.state.records.get("s" + owner) == grant.slot]
    if len(taken) > 1:
        yield "S12", f"slot {grant.slot:.0f} is held by {sorted(taken)}"


def _one_owner_one_grant(lock: Lock, step: Step) -> Iterator[tuple[str, str]]:
    grant = step.granted
    if step.row.op == "acquire" and step.held:
        changed = [member for member in (f"t{step.owner}", f"s{step.owner}") if member in step.changes]
        if changed or grant:
            yield "S5", f"asked again, and got something else: {changed}"
    if grant and grant.owner != step.owner:
        yield "S5", f"granted to {grant.owner}, who did not ask"
    if grant and step.row.op != "acquire":
        yield "S7", f"{step.row.op} made {grant.owner} a holder"
    old, new = step.changes.get("h" + step.owner, (None, None))
    if new is not None and not step.held and not grant:
        yield "S7", f"a lease that had ended at {old} goes on until {new}"
    if grant and any(before.history == grant.history for before in lock.by_owner[grant.owner][:-1]):
        lock.regrants.append(grant)


def _the_lease(lock: Lock, step: Step) -> Iterator[tuple[str, str]]:
    new = step.changes.get("h" + step.owner, (None, None))[1]
    if new is None or "lease" not in step.row.ask:
        return
    length = new - step.state.now
    if length < step.row.ask["lease"]:
        yield "S8", f"a lease of {length} ms, asked for were {step.row.ask['lease']}"
    if length > step.row.ask["lease"]:
        yield "L1", f"a lease of {length} ms, asked for were {step.row.ask['lease']}"


def _others(lock: Lock, step: Step) -> Iterator[tuple[str, str]]:
    """Nobody's records change by what another one does, but for what is over, and for a clock's step."""
    now, shift = step.state.now, step.shift if step.shift < -BACK_MS else 0
    for member, (old, new) in step.changes.items():
        kind, name = member[0], member[1:]
        if old is None and new is None:
            continue
        if kind in _HOLDERS and name != step.owner:
            expiry = step.changes.get("h" + name, (step.state.records.get("h" + name), None))[0]
            moved = kind == "h" and old is not None and new == old + shift and shift
            over = new is None and (expiry is None or expiry + shift <= now)
            if not moved and not over:
                yield "S6", f"{step.row.op} of {step.owner} changed {member}: {old} to {new}"
        elif kind in _WAITERS and (name != step.waiter or step.row.op == "renew"):
            yield from _other_waiter(step, member, shift)


def _other_waiter(step: Step, member: str, shift: float) -> Iterator[tuple[str, str]]:
    kind, name = member[0], member[1:]
    old, new = step.changes[member]
    now = step.state.now

    def was(record: str) -> float | None:
        return step.changes.get(record + name, (step.state.records.get(record + name), None))[0]

    present, kept = was("p"), was("k")
    gone = present is not None and -present + shift <= now
    over = kept is not None and -1e14 - kept + shift <= now
    ticket = was("q")
    forgotten = over and new is None
    parked = gone and (new is None if kind in "qp" else kind == "c" and new == (ticket or 0) + 1e13)
    moved = kind in "pk" and old is not None and new == old - shift and shift != 0
    if not (forgotten or parked or moved):
        yield "S6", f"{step.row.op} of {step.waiter} changed {member}: {old} to {new}"


def _the_line(lock: Lock, step: Step) -> Iterator[tuple[str, str]]:
    row, state = step.row, step.state
    if row.op != "acquire" or row.error or step.held:
        return
    if step.granted and step.rank >= step.free:
        yield "S9", f"granted with {step.rank} present before it and {step.free} free"
    if row.ask.get("presence") == 0:  # it could not make use of a grant now
        if step.granted:
            yield "S9", "granted to one that asked to be parked"
        return
    settling = state.grace() or (state.settled is not None and state.now < state.settled)
    if not step.granted and step.rank < step.free and not settling:
        yield "L2", f"not granted with {step.rank} present before it and {step.free} free"


def _the_grace(lock: Lock, step: Step) -> Iterator[tuple[str, str]]:
    row, state = step.row, step.state
    if state.settled is not None:
        state.settled += step.shift if step.shift < -BACK_MS else 0
    if row.op != "acquire" or step.held or row.error:
        return
    if state.taken_over:
        longest = max(state.book("L") or 0, row.ask["lease"])
        state.settled, state.taken_over = state.now + longest, False
    if step.granted and state.settled is not None and state.now < state.settled:
        left = state.settled - state.now
        yield "S2", f"granted {left} ms too early: what the server before granted may still be held"


def _the_place(lock: Lock, step: Step) -> Iterator[tuple[str, str]]:
    row, state, waiter = step.row, step.state, step.waiter
    if row.error or not row.before:
        return
    after, before = state.ticket(waiter), step.ticket
    waits = row.op == "acquire" and not step.granted and not step.held and "presence" in row.ask
    if row.op == "park" and before is None:
        before = step.used or row.ask.get("ticket") or None
    # of two places, one used up by a grant and one of the next attempt, the waiter keeps the first
    told = (step.used, row.ask.get("ticket"))
    further_ahead = row.op == "park" and after in told and (after or math.inf) < (before or 0)
    if (waits or row.op == "park") and before is not None and after != before and not further_ahead:
        yield "L4", f"the place was {before:.0f} and is {after}"
    (was, present), (_, kept) = (step.changes.get(kind + waiter, (None, None)) for kind in "pk")
    # another attempt may be present for longer
    others = [] if was is None or lock.asker.get(waiter) == step.owner else [was - step.shift]
    parks = waits and row.ask["presence"] == 0
    if parks and present is not None and present not in others:
        yield "L3", f"present until {present}, and asked to be parked"
    if waits and not parks and present not in (-(state.now + row.ask["presence"]), *others):
        yield "L3", f"present until {present}, asked for were {row.ask['presence']} ms"
    if waits and kept != -1e14 - (state.now + row.ask["keep"]):
        yield "L4", f"kept until {kept}, asked for were {row.ask['keep']} ms"
    left = row.op == "release" and not step.held
    if left and lock.asker.get(waiter) == step.owner and after is not None:
        yield "L8", f"{step.owner} left and its place {after:.0f} is still there"


def _the_wake_up(lock: Lock, step: Step) -> Iterator[tuple[str, str]]:
    row, state = step.row, step.state
    if row.error or state.grace():
        return
    raised = step.granted is not None and 0 < step.state.limit < step.limit
    gave = row.op in ("release", "park") and row.before
    if raised or gave:
        missed = set(state.next_in_line(step.limit - len(state.live))) - step.woken
        if missed:
            yield "S10" if raised else "L2", f"a slot is free and nobody woke {sorted(missed)}"


def _only_this_lock(lock: Lock, step: Step) -> Iterator[tuple[str, str]]:
    row = step.row
    if row.foreign:
        yield "S11", f"it reached out of its lock: {row.foreign}"
    if row.unknown:
        yield "audit", f"the recorder does not know what {row.unknown} does"
    if row.op != "acquire" and not row.before and row.after:
        yield "S6", f"{row.op} created the lock"


_RULES: tuple[Rule, ...] = (
    _the_clock,
    _the_limit,
    _the_token,
    _one_owner_one_grant,
    _the_lease,
    _others,
    _the_grace,
    _the_line,
    _the_place,
    _the_wake_up,
    _only_this_lock,
)


def _count(lock: Lock, step: Step, findings: Findings) -> None:
    row, counts = step.row, findings.counts
    counts["rows"] += 1
    counts["errors in scripts"] += bool(row.error)
    counts["clock steps back"] += step.shift < -BACK_MS
    counts["wake-ups"] += len(step.woken)
    counts["leases run out"] += sum(
        new is None and member[0] == "h" and not (member[1:] == step.owner and step.held)
        for member, (old, new) in step.changes.items()
        if old is not None
    )
    if row.op == "acquire":
        kind = "grants" if step.granted else "asked again" if step.held else "waits"
        counts[kind] += 1
    else:
        names = {"renew": ("renewals", "renewals refused"), "release": ("releases", "left the line")}
        yes, no = names.get(row.op, ("given back with the place", "parked"))
        counts[yes if step.held else no] += 1
    if step.granted:
        findings.most("most at once", len(step.state.live))
        findings.most("limit", step.limit)
        counts["limits changed"] += step.state.limit not in (0, step.limit)
