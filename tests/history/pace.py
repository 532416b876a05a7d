"""How long it took: L1, L2, L3, L5 and L10, on the clients' clock."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .expectations import Expectations, Fault
from .findings import Findings
from .served import Lock, Step
from .state import State


@dataclass(slots=True)
class _Queue:
    """What is going on in one lock on one server."""

    lock: Lock
    state: State
    limit: int = 0
    idle_since: float | None = None
    """A slot has been free since, and somebody present could have it."""
    rule: str = "L2"
    came: dict[str, tuple[float, int, int]] = field(default_factory=dict)
    """By present waiter: when it came, how many were before it, how many grants there had been."""
    polled: dict[str, tuple[float, str]] = field(default_factory=dict)
    """By waiter in line: when it asked last, and for which owner."""
    turns: list[tuple[str, float, float, int, int]] = field(default_factory=list)
    """Waiters that were granted: who, from, to, turns before it, limit."""


class Pace:
    """Follows the steps of all locks."""

    def __init__(self, expectations: Expectations, faults: Sequence[Fault], findings: Findings) -> None:
        self._bound = expectations.poll + expectations.slack
        self._slack = expectations.slack
        self._faults = faults
        self._findings = findings
        self._queues: dict[tuple[str, tuple[str, str, int]], _Queue] = {}

    def follow(self, lock: Lock, step: Step) -> None:
        """Take note of a step."""
        state, name = step.state, step.row.lock
        queue = self._queues.setdefault((name, state.history), _Queue(lock, state))
        self._what_ended(queue, step)
        self._who_asked(queue, step)
        if step.granted:
            self._judge(queue, name, step.row.at)
            queue.idle_since = None
            if came := queue.came.pop(step.waiter, None):
                since, before, grants = came
                turns = max(before, len(lock.grants) - 1 - grants)
                queue.turns.append((step.waiter, since, step.row.at, turns, step.limit))
        queue.limit = step.limit
        settling = state.grace() or (state.settled is not None and state.now < state.settled)
        if queue.limit <= len(state.live) or not state.present or settling:
            queue.idle_since = None
        elif queue.idle_since is None:
            queue.idle_since, queue.rule = step.row.at, "L2"
        for member in step.changes:
            waiter = member[1:]
            if member[0] == "q" and waiter not in state.present:
                queue.came.pop(waiter, None)
            elif member[0] == "q":
                place = state.line.before(state.present[waiter])
                queue.came.setdefault(waiter, (step.row.at, place, len(lock.grants)))

    def finish(
        self, locks: dict[str, Lock], end: float, longest_lease: float, waiting: Mapping[str, int]
    ) -> None:
        """Judge what had not come to an end, and everybody's wait.

        `waiting` are the owners that still want to wait, with their processes.
        """
        for (name, history), queue in self._queues.items():
            current = locks[name].states[locks[name].current]
            if current.history == history:
                self._judge(queue, name, end)
                for asked, owner in queue.polled.values():
                    if owner in waiting:
                        self._judge_silence(name, owner, waiting[owner], asked, end)
            holds = [grant.ended_at - grant.at for grant in queue.lock.grants if grant.ended]
            for waiter, since, until, turns, limit in queue.turns:
                bound = math.ceil((turns + 1) / limit) * (max(holds, default=0) + self._bound)
                bound += longest_lease + self._slack
                if until - since > bound and until - since > (bound := bound + self._broken(since, until)):
                    text = f"{waiter} waited {until - since:.1f} s for {turns} turns, at most {bound:.1f}"
                    self._findings.violate("L10", text, name, until)
                self._findings.most("longest wait", round(until - since, 1))

    def _what_ended(self, queue: _Queue, step: Step) -> None:
        live = step.limit - step.free
        free = queue.limit - live - sum(member[0] == "h" for _, member in step.ended)
        for at, member in step.ended:
            if member[0] == "h":
                free += 1
                if free > 0 and queue.idle_since is None and queue.came:
                    queue.idle_since, queue.rule = at, "L1"
            elif queue.idle_since is not None:
                # a dead waiter at the head was in the way until then
                ticket = step.changes.get("q" + member[1:], (None, None))[0]
                if ticket is not None and queue.state.line.before(ticket) < free:
                    self._findings.counts["dead at the head"] += 1
                    queue.idle_since = max(queue.idle_since, at)

    def _who_asked(self, queue: _Queue, step: Step) -> None:
        row, waiter = step.row, step.waiter
        if row.error or row.op == "renew":
            return
        asked = queue.polled.pop(waiter, None)
        if asked and asked[1] == step.owner:
            process = int(row.ask.get("call", "0:").partition(":")[0])
            self._judge_silence(row.lock, step.owner, process, asked[0], row.at)
        if row.op == "acquire" and row.ask.get("presence") and not step.granted and not step.held:
            queue.polled[waiter] = row.at, step.owner

    def _judge_silence(self, name: str, owner: str, process: int, since: float, end: float) -> None:
        """Who waits asks every now and then, whatever happens."""
        silence, rule = end - since, "L2"
        self._findings.most("longest silence", round(silence, 2))
        if silence <= self._bound:
            return
        for fault in self._faults:
            if fault.start < end and fault.end > since and fault.process in (0, process):
                since, rule = fault.end, "L5"
        if end - since > self._bound:
            text = f"{owner} did not ask for {end - since:.1f} s, at most {self._bound:.1f}"
            self._findings.violate(rule, text, name, end)

    def _judge(self, queue: _Queue, name: str, end: float) -> None:
        since, rule = queue.idle_since, queue.rule
        if since is None:
            return
        self._findings.most("longest idle", round(end - since, 2))
        if end - since <= self._bound:
            return
        for fault in self._faults:
            if fault.start < end and fault.end > since:
                since, rule = fault.end, "L5"
        if end - since > self._bound:
            text = f"a slot was free for {end - since:.1f} s with somebody there, at most {self._bound:.1f}"
            self._findings.violate(rule, text, name, end)

    def _broken(self, since: float, until: float) -> float:
        return sum(max(min(fault.end, until) - max(fault.start, since), 0) for fault in self._faults)
