"""One lock as one server has it, rebuilt from the audit alone.

Knows the bands of scores that ``common.lua`` documents, and nothing of how the scripts decide.
"""

import bisect
import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

BAND = 1e11
"""Tickets of one priority lie this close together."""


class Line:
    """Who stands in line: ranks in O(log n), for tickets that are known beforehand (a Fenwick tree)."""

    def __init__(self, tickets: Iterable[float]) -> None:
        self._tickets = sorted(set(tickets))
        self._sums = [0] * (len(self._tickets) + 1)
        self._waiters: dict[float, set[str]] = {}

    def change(self, waiter: str, ticket: float, by: int) -> None:
        """Let a waiter in (1) or out (-1)."""
        at = self._waiters.setdefault(ticket, set())
        (at.add if by > 0 else at.discard)(waiter)
        place = bisect.bisect_left(self._tickets, ticket) + 1
        while place < len(self._sums):
            self._sums[place] += by
            place += place & -place

    def before(self, ticket: float) -> int:
        """How many have a lower ticket."""
        place, found = bisect.bisect_left(self._tickets, ticket), 0
        while place:
            found += self._sums[place]
            place &= place - 1
        return found

    def at_rank(self, rank: int) -> set[str]:
        """Who has so many before it."""
        place, step = 0, 1 << len(self._sums).bit_length()
        while step := step >> 1:
            if place + step < len(self._sums) and self._sums[place + step] <= rank:
                place += step
                rank -= self._sums[place]
        return self._waiters.get(self._tickets[place], set()) if place < len(self._tickets) else set()


@dataclass(slots=True)
class State:
    """The records of a lock, and what follows from them at a time."""

    line: Line
    history: tuple[str, str, int]
    """Which history of grants this is: server, process, and how often it had to begin anew."""
    now: float = 0
    at: float = 0.0
    """The same moment on the clients' clock, about."""
    records: dict[str, float] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    present: dict[str, float] = field(default_factory=dict)
    """Waiters that count for a grant, with their tickets."""
    ttl: bool = False
    limit: int = 0
    """With which limit this server granted the lock last: one that was replaced does not hear of others."""
    taken_over: bool = False
    """Another server served before this one, and it has not granted anything since."""
    settled: float | None = None
    """By the server's clock: nothing new is to be granted before."""
    _ends: list[tuple[float, str]] = field(default_factory=list)

    def put(self, member: str, score: float) -> None:
        """A record was written."""
        self.records[member] = score
        if member[0] == "h":
            heapq.heappush(self._ends, (score, member))
            self._refresh(member)
        elif member[0] in "qp":
            if member[0] == "p":
                heapq.heappush(self._ends, (-score, member))
            self._refresh(member)

    def remove(self, member: str) -> None:
        """A record was deleted."""
        if self.records.pop(member, None) is not None and member[0] in "hqp":
            self._refresh(member)

    def tick(self, now: float) -> list[tuple[float, str]]:
        """Let time pass. Returns what ended, in order: when, and the record of a holder or of a presence."""
        ended = []
        self.now = now
        while self._ends and self._ends[0][0] <= now:
            end, member = heapq.heappop(self._ends)
            if self.records.get(member) == (end if member[0] == "h" else -end):
                ended.append((end, member))
                self._refresh(member)
        return ended

    def ticket(self, waiter: str) -> float | None:
        """The place in line that a waiter has, present or parked, while it is kept."""
        if -1e14 - self.records.get("k" + waiter, -1e14) <= self.now:
            return None
        cold = self.records.get("c" + waiter)
        return self.records.get("q" + waiter, None if cold is None else cold - 1e13)

    def book(self, name: str) -> float | None:
        """Bookkeeping."""
        value = self.records.get("#" + name)
        return None if value is None else -4e15 - value

    def grace(self) -> bool:
        """Whether the lock says that nothing new is granted now."""
        return (self.book("g") or 0) > self.now

    def next_in_line(self, free: int) -> list[str]:
        """The first so many present waiters."""
        count = max(min(free, len(self.present)), 0)
        found = [waiter for rank in range(count) for waiter in sorted(self.line.at_rank(rank))]
        return list(dict.fromkeys(found))

    def when(self, now: float) -> float:
        """A moment on the server's clock as one on the clients'."""
        return self.at + (now - self.now) / 1000

    def _refresh(self, member: str) -> None:
        name = member[1:]
        if member[0] == "h":
            (self.live.add if self.records.get(member, 0) > self.now else self.live.discard)(name)
            return
        ticket = self.records.get("q" + name)
        if ticket is not None and -self.records.get("p" + name, 0) <= self.now:
            ticket = None
        was = self.present.get(name)
        if was == ticket:
            return
        if was is not None:
            self.line.change(name, self.present.pop(name), -1)
        if ticket is not None:
            self.present[name] = ticket
            self.line.change(name, ticket, 1)
