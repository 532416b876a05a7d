"""Runs of the demo that never happened: all promises kept, to be broken one at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lock_interceptor.dev.demo.plan import Lock
from lock_interceptor.dev.demo.promises import Run
from lock_interceptor.dev.demo.record import DeadSlot, Kill, Record

BEGAN = 100.0
KILLED_AT = 101.7
LOCKS = (Lock("ledger", 1), Lock("api", 3), Lock("tenant", 1, "ann"), Lock("tenant", 1, "bob"))
HISTORY = ("WORKFLOW_STARTED", "ACTIVITY_SCHEDULED", "ACTIVITY_COMPLETED", "WORKFLOW_COMPLETED")
PER_SLOT = 4


@dataclass
class _Journals:
    """What the workers of the run noted down."""

    lines: list[tuple[str, dict[str, Any]]]

    def write(self, worker: str, event: str, at: float, **facts: Any) -> None:
        self.lines.append((worker, {"event": event, "at": at, **facts}))

    def record(self) -> Record:
        record = Record()
        for worker, line in sorted(self.lines, key=lambda entry: entry[1]["at"]):
            record.feed(worker, [line])
        return record


def waiting(journals: _Journals, worker: str, which: dict[str, str], since: float, until: float) -> None:
    """Somebody stands in line, and asks again twice a second."""
    at = since
    while at < until:
        journals.write(worker, "ask", at, **which)
        journals.write(worker, "answer", at + 0.01, **which, token=None)
        at += 0.5


def holding(
    journals: _Journals,
    worker: str,
    which: dict[str, str],
    *,
    token: int,
    slot: int,
    start: float,
    end: float,
) -> None:
    """Somebody asks, is granted, works and gives back."""
    journals.write(worker, "ask", start - 0.03, **which)
    journals.write(worker, "answer", start - 0.01, **which, token=token)
    journals.write(worker, "start", start, **which, token=token, slot=slot)
    if end <= KILLED_AT or worker != "B":
        journals.write(worker, "end", end, **which, token=token, slot=slot, done=True)
        journals.write(worker, "leave", end + 0.01, **which)


def kept_run(locks: tuple[Lock, ...] = LOCKS) -> Run:
    """Each slot goes through four orders of half a second; the fourth of the ledger's is killed once.

    Of a limit of three each slot is granted in turn, a tenth of a second apart.
    """
    locked, unlocked = _Journals([]), _Journals([])
    orders: list[str] = []
    for lock in locks:
        for number in range(lock.limit * PER_SLOT):
            order = f"{lock.label}-{number:03}"
            orders.append(order)
            which = {"order": order, "lock": lock.label}
            turn, slot = divmod(number, lock.limit)
            start = BEGAN + 0.2 + turn * 0.6 + slot * 0.1
            waiting(locked, "A", which, BEGAN + number / 50, start - 0.1)
            if lock.label == "ledger" and turn == 2:
                holding(locked, "B", which, token=10 * number + 10, slot=0, start=start, end=start + 0.5)
                waiting(locked, "C", which, start + 3.2, start + 3.6)
                holding(locked, "C", which, token=900, slot=0, start=start + 4, end=start + 4.5)
            elif lock.label == "ledger" and turn == 3:
                waiting(locked, "A", which, start - 0.1, start + 2.4)
                holding(locked, "A", which, token=800, slot=0, start=start + 2.5, end=start + 3)
            else:
                holding(locked, "A", which, token=10 * number + 10, slot=slot, start=start, end=start + 0.5)
            free = {"order": f"un{order}", "lock": lock.label}
            unlocked.write("unlocked", "start", BEGAN - 20, **free, token=number, slot=0)
            unlocked.write("unlocked", "end", BEGAN - 19, **free, token=number, slot=0, done=True)
    record = locked.record()
    record.killed("B", KILLED_AT)
    dead = tuple(_dead_slots(record))
    return Run(
        locks=locks,
        lease=timedelta(seconds=3),
        orders=orders,
        completed=set(orders),
        record=record,
        unlocked=unlocked.record(),
        kill=Kill(worker="B", pid=4242, at=KILLED_AT, slots=dead),
        began=BEGAN,
        histories=dict.fromkeys(orders, HISTORY),
        unlocked_histories=[HISTORY] * len(orders),
    )


def _dead_slots(record: Record) -> Iterator[DeadSlot]:
    for execution in record.executions:
        if execution.outcome == "killed":
            yield DeadSlot(
                lock=execution.lock,
                slot=execution.slot,
                token=execution.token,
                lease_end=KILLED_AT + 2.5,
                back=KILLED_AT + 2.6,
            )
