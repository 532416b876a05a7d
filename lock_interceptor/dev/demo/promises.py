"""What was promised against what was measured.

A promise is kept when a measurement shows it, broken when one contradicts it, and not measured when there was
nothing to measure: that is no success either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from lock_interceptor.dev.demo.line import Turn, fairness, out_of_order, turns
from lock_interceptor.dev.demo.plan import Lock
from lock_interceptor.dev.demo.record import Execution, Kill, Record

Verdict = Literal["kept", "BROKEN", "not measured"]

LATEST_AFTER_LEASE = timedelta(seconds=1)
"""How long after a dead worker's lease its slot may stay taken, as promised."""


@dataclass(frozen=True, slots=True)
class Promise:
    """One row of the table."""

    text: str
    measured: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that was measured."""

    locks: Sequence[Lock]
    lease: timedelta
    orders: Collection[str]
    """Workflow ids that were to be done."""
    completed: Collection[str]
    """Workflow ids that Temporal calls completed."""
    record: Record
    unlocked: Record
    """The same work without locks: it shows that there was something to limit."""
    kill: Kill | None
    began: float
    """When the run with locks began."""
    histories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Event types of each order's workflow."""
    unlocked_histories: Sequence[tuple[str, ...]] = ()
    """Event types of the same workflows without locks, in the order of the orders."""


def evaluate(run: Run) -> list[Promise]:
    """The table."""
    in_line = turns(run.record)
    return [
        _executions(run),
        *_limits(run),
        _tokens(in_line),
        _first_come(run, in_line),
        _waiting(run, in_line),
        _crash(run),
        _history(run),
    ]


def most_at_once(executions: Iterable[Execution]) -> int:
    """The most bodies that ran at one moment; of two that touch, both count."""
    edges = []
    for execution in executions:
        edges.append((execution.start, 0))
        edges.append((float("inf") if execution.end is None else execution.end, 1))
    running = most = 0
    for _, ends in sorted(edges):
        running += -1 if ends else 1
        most = max(most, running)
    return most


def _verdict(*, measured: object, kept: bool) -> Verdict:
    """A contradiction counts even where too little was measured for a success."""
    if not kept:
        return "BROKEN"
    return "kept" if measured else "not measured"


def _executions(run: Run) -> Promise:
    expected, finished = set(run.orders), run.record.done()
    done = expected & finished & set(run.completed)
    cut_off = {execution.worker for execution in run.record.executions if execution.outcome == "killed"}
    cut_off |= {run.kill.worker} if run.kill else set()
    # a worker that is killed before it could report makes Temporal repeat what was done
    ended = [execution for execution in run.record.executions if execution.outcome == "done"]
    known = [execution.order for execution in ended if execution.worker not in cut_off]
    repeated = len(known) - len(set(known))
    unheard = sum(execution.worker in cut_off and execution.order in known for execution in ended)
    killed = sum(execution.outcome == "killed" for execution in run.record.executions)
    text = f"{len(done)} of {len(expected)} done"
    text += f", {killed} cut off by the kill and run again" if killed else ""
    text += f", {unheard} done but not reported before it" if unheard else ""
    text += f"; {repeated} done twice" if repeated else ""
    text += f"; {len(finished - expected)} that nobody ordered" if finished - expected else ""
    kept = done == expected and not repeated and finished <= expected
    return Promise("Everything is done", text, _verdict(measured=done, kept=kept))


def _limits(run: Run) -> Iterable[Promise]:
    """One row for each lock name, with the worst of its keys."""
    for name in dict.fromkeys(lock.name for lock in run.locks):
        locks = [lock for lock in run.locks if lock.name == name]
        labels, limit = [lock.label for lock in locks], locks[0].limit
        with_lock = max(most_at_once(_of(run.record, [each])) for each in labels)
        without = max(most_at_once(_of(run.unlocked, [each])) for each in labels)
        measured = f"{with_lock} at once, without the lock {without}"
        if len(labels) > 1:
            measured += f"; {most_at_once(_of(run.record, labels))} keys side by side"
        each = f" for each of {len(labels)} keys" if len(labels) > 1 else ""
        # had nothing tried to exceed the limit, nothing would be shown
        verdict = _verdict(measured=with_lock and without > limit, kept=with_lock <= limit)
        yield Promise(f"{name}: at most {limit} at once{each}", measured, verdict)


def _of(record: Record, labels: Collection[str]) -> list[Execution]:
    return [execution for execution in record.executions if execution.lock in labels]


def _tokens(in_line: Mapping[str, list[Turn]]) -> Promise:
    grants, wrong = 0, []
    for of_lock in in_line.values():
        count, found = out_of_order(of_lock)
        grants += count
        wrong += found
    text = f"{grants} grants of {len(in_line)} locks, {len(wrong)} out of order{_example(wrong)}"
    return Promise("Tokens rise with every grant", text, _verdict(measured=grants > 1, kept=not wrong))


def _first_come(run: Run, in_line: Mapping[str, list[Turn]]) -> Promise:
    judged = 0
    passed: list[str] = []
    for lock in run.locks:
        found = fairness(in_line.get(lock.label, []), lock.limit, run.kill)
        judged += found.grants
        passed += found.overtaken
    text = f"{judged} grants with others in line, {len(passed)} out of turn{_example(passed)}"
    return Promise("First come, first served", text, _verdict(measured=judged, kept=not passed))


def _waiting(run: Run, in_line: Mapping[str, list[Turn]]) -> Promise:
    waits = [turn.waited for of_lock in in_line.values() for turn in of_lock if turn.asks and turn.grant]
    failed = len(set(run.orders) - set(run.completed))
    longest = f"longest wait {max(waits):.1f} s" if waits else "nobody waited"
    text = f"{len(waits)} waited, {longest}, {failed} failed"
    return Promise("Waiting fails nobody", text, _verdict(measured=waits, kept=not failed))


def _crash(run: Run) -> Promise:
    lease, bound = run.lease, run.lease + LATEST_AFTER_LEASE
    text = f"A dead worker's slots: back in {bound.total_seconds():g} s (lease {lease.total_seconds():g} s)"
    kill = run.kill
    if kill is None:
        return Promise(text, "no worker was killed", "not measured")
    if not kill.slots:
        return Promise(text, f"worker {kill.worker} held nothing when it was killed", "not measured")
    slots = sorted(kill.slots, key=lambda slot: (slot.lock, slot.slot))
    after = [None if slot.back is None else slot.back - kill.at for slot in slots]
    listed = [
        f"{slot.lock} slot {slot.slot} {'never' if seconds is None else f'after {seconds:.1f} s'}"
        for slot, seconds in zip(slots, after, strict=True)
    ]
    late = any(seconds is None or seconds > bound.total_seconds() for seconds in after)
    return Promise(text, ", ".join(listed), _verdict(measured=listed, kept=not late))


def _history(run: Run) -> Promise:
    text = "Nothing is added to a workflow's history"
    pairs = [
        (run.histories[order], plain)
        for order, plain in zip(run.orders, run.unlocked_histories, strict=False)
        if order in run.histories
    ]
    different = sum(locked != plain for locked, plain in pairs)
    added = sum(len(locked) - len(plain) for locked, plain in pairs)
    if not pairs:
        return Promise(text, "no history was read", "not measured")
    measured = f"{added} events added to {len(pairs)} workflows of {_sizes(pairs)}"
    measured += f"; {different} differ" if different else ""
    return Promise(text, measured, _verdict(measured=len(pairs) == len(run.orders), kept=not different))


def _sizes(pairs: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]) -> str:
    sizes = [len(plain) for _, plain in pairs]
    return f"{min(sizes)} events" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)} events"


def _example(found: Sequence[str]) -> str:
    return f" ({found[0]})" if found else ""


def broken(promises: Sequence[Promise]) -> bool:
    """Whether any promise was not shown to be kept."""
    return not promises or any(promise.verdict != "kept" for promise in promises)
