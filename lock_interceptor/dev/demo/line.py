"""Who stood in line for a lock, when, and whether anybody was overtaken.

Nobody sees the moment at which the server decides, only that it lies between request and answer. So whatever
is uncertain is read in favour of the lock, and what is then still out of order was out of order for sure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from lock_interceptor.dev.demo.record import Ask, Kill, Leave, Record

SURELY_PRESENT = 2.0
"""Seconds after its last request for which a waiter counts as present for sure; the store allows it three."""


@dataclass(slots=True, kw_only=True)
class Turn:
    """One way through the line: from the first request to the grant."""

    order: str
    lock: str
    arrived_after: float
    """When the first request was sent."""
    arrived_before: float
    """When the first request that certainly put it in line was answered."""
    asks: list[Ask] = field(default_factory=list)
    """Requests that were answered with "wait", in order."""
    left: list[Leave] = field(default_factory=list)
    """When its order stepped aside or gave back, in this turn and in others."""
    grant: Ask | None = None
    released: float | None = None
    """When it began to give back; None if it was killed before."""

    @property
    def waited(self) -> float:
        """Seconds from the first request to the grant; 0 without one."""
        return self.grant.answered - self.arrived_after if self.grant and self.grant.answered else 0.0

    def surely_present(self, since: float, until: float, kill: Kill | None) -> bool:
        """Whether it was in line, in a worker and asking, all the time between."""
        before = bisect_right(self.asks, since, key=lambda ask: ask.answered or 0.0)
        if not before:
            return False
        last = self.asks[before - 1]
        asked = last.answered or 0.0
        if until - asked > SURELY_PRESENT or (kill and kill.worker == last.worker and kill.at <= until):
            return False
        return not any(asked <= leave.at <= until for leave in self.left)

    def surely_held(self, since: float, until: float) -> bool:
        """Whether it held the lock all the time between; nobody can tell of one that was killed."""
        return (
            self.grant is not None
            and self.grant.answered is not None
            and self.grant.answered <= since
            and self.released is not None
            and self.released >= until
        )


def turns(record: Record) -> dict[str, list[Turn]]:
    """All turns by lock, those with a grant in the order of their tokens."""
    leaves: dict[tuple[str, str], list[Leave]] = defaultdict(list)
    for leave in sorted(record.leaves, key=lambda leave: leave.at):
        leaves[leave.order, leave.lock].append(leave)
    by_order: dict[tuple[str, str], list[Ask]] = defaultdict(list)
    for ask in sorted(record.asks, key=lambda ask: ask.sent):
        by_order[ask.order, ask.lock].append(ask)
    found: dict[str, list[Turn]] = defaultdict(list)
    for (order, lock), asks in by_order.items():
        found[lock].extend(_turns_of(asks, leaves[order, lock]))
    for of_lock in found.values():
        of_lock.sort(key=lambda turn: (turn.grant is None, turn.grant.token if turn.grant else 0))
    return found


def _turns_of(asks: Iterable[Ask], left: list[Leave]) -> Iterable[Turn]:
    turn: Turn | None = None
    for ask in asks:
        if turn is None:
            turn = Turn(
                order=ask.order, lock=ask.lock, arrived_after=ask.sent, arrived_before=float("inf"), left=left
            )
        if ask.answered is None:
            # it may have been granted unheard, and then the next request stands in line anew
            turn.arrived_before = float("inf")
            turn.asks = []
            continue
        turn.arrived_before = min(turn.arrived_before, ask.answered)
        if ask.token is None:
            turn.asks.append(ask)
            continue
        turn.grant = ask
        # a worker that was killed gave nothing back; what its order gives back later it was granted anew
        given_back = (leave.at for leave in left if leave.worker == ask.worker and leave.at >= ask.sent)
        turn.released = next(given_back, None)
        yield turn
        turn = None
    if turn is not None:
        yield turn


@dataclass(frozen=True, slots=True)
class Fairness:
    """What `fairness` found."""

    grants: int = 0
    """Grants while somebody who had come earlier or later was known to stand in line."""
    overtaken: tuple[str, ...] = ()
    """Each grant that passed over somebody."""


def fairness(turns: list[Turn], limit: int, kill: Kill | None) -> Fairness:
    """Look at each grant of one lock: was a slot left for everybody who stood in line before?"""
    judged, overtaken = 0, []
    granted = [turn for turn in turns if turn.grant is not None]
    for turn in granted:
        if turn.grant is None or turn.grant.answered is None:
            continue
        since, until = turn.grant.sent, turn.grant.answered
        present = [
            other
            for other in turns
            if other is not turn
            and (other.grant is None or other.grant.sent > until)
            and other.surely_present(since, until, kill)
        ]
        judged += bool(present)
        before = [other for other in present if other.arrived_before < turn.arrived_after]
        free = limit - sum(other.surely_held(since, until) for other in granted)
        if len(before) >= max(free, 1):
            overtaken.append(f"{turn.order} passed {before[0].order}")
    return Fairness(judged, tuple(overtaken))


def out_of_order(turns: list[Turn]) -> tuple[int, list[str]]:
    """How many grants there were, and those whose token is not above that of each grant before."""
    grants = [turn.grant for turn in turns if turn.grant is not None]
    by_answer = sorted(grants, key=lambda grant: grant.answered or 0.0)
    wrong, highest, position = [], 0, 0
    for grant in sorted(grants, key=lambda grant: grant.sent):
        while position < len(by_answer) and (by_answer[position].answered or 0.0) < grant.sent:
            highest = max(highest, by_answer[position].token or 0)
            position += 1
        if (grant.token or 0) <= highest:
            wrong.append(f"{grant.order}: token {grant.token} after {highest}")
    return len(grants), wrong
