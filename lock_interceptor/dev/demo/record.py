"""What happened in a run, put together from the journals of all its workers.

All times are readings of CLOCK_MONOTONIC in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["running", "done", "failed", "killed"]


@dataclass(slots=True, kw_only=True)
class Execution:
    """One run of an activity's body, as the body itself saw it."""

    order: str
    lock: str
    worker: str
    token: int
    slot: int
    start: float
    end: float | None = None
    """Of one that was killed: when the kill was over."""
    outcome: Outcome = "running"


@dataclass(slots=True, kw_only=True)
class Ask:
    """One request for a lock. The server decided between `sent` and `answered`."""

    order: str
    lock: str
    worker: str
    sent: float
    answered: float | None = None
    """None if no answer came, so nobody knows what was decided."""
    token: int | None = None
    """Of the grant, if it was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A lock, or a place in line, about to be given back."""

    order: str
    lock: str
    worker: str
    at: float


@dataclass(slots=True, kw_only=True)
class DeadSlot:
    """A slot that the killed worker held."""

    lock: str
    slot: int
    token: int
    lease_end: float
    """When the lease was going to end, as the server told right after the kill."""
    back: float | None = None
    """When the slot was first seen free, or granted to somebody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """The SIGKILL."""

    worker: str
    pid: int
    at: float
    slots: tuple[DeadSlot, ...] = ()


@dataclass(slots=True)
class Record:
    """Fed with journal lines while the run goes on."""

    executions: list[Execution] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    leaves: list[Leave] = field(default_factory=list)
    ready: dict[str, float] = field(default_factory=dict)
    """When each worker began to work."""
    _open: dict[tuple[str, int, str], Execution] = field(default_factory=dict)
    _asking: dict[tuple[str, str, str], Ask] = field(default_factory=dict)

    def feed(self, worker: str, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take in what a worker noted down."""
        for line in lines:
            at = line["at"]
            if line["event"] == "ready":
                self.ready[worker] = at
                continue
            order, lock = line["order"], line["lock"]
            match line["event"]:
                case "start":
                    execution = Execution(
                        order=order,
                        lock=lock,
                        worker=worker,
                        token=line["token"],
                        slot=line["slot"],
                        start=at,
                    )
                    self.executions.append(execution)
                    self._open[worker, execution.token, order] = execution
                case "end":
                    execution = self._open.pop((worker, line["token"], order))
                    execution.end = at
                    execution.outcome = "done" if line["done"] else "failed"
                case "ask":
                    ask = Ask(order=order, lock=lock, worker=worker, sent=at)
                    self.asks.append(ask)
                    self._asking[worker, order, lock] = ask
                case "answer":
                    ask = self._asking.pop((worker, order, lock))
                    ask.answered, ask.token = at, line["token"]
                case "leave":
                    self.leaves.append(Leave(order=order, lock=lock, worker=worker, at=at))

    def killed(self, worker: str, at: float) -> None:
        """A worker was killed: no body of it ran any longer than until then."""
        for execution in self.running(worker):
            execution.end, execution.outcome = at, "killed"
            del self._open[worker, execution.token, execution.order]

    def running(self, worker: str) -> list[Execution]:
        """The bodies that a worker runs."""
        return [execution for execution in self._open.values() if execution.worker == worker]

    def done(self) -> set[str]:
        """The orders with a body that came to its end."""
        return {execution.order for execution in self.executions if execution.outcome == "done"}
