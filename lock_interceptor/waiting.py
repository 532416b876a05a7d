"""How long to wait, and where: pure policy, no I/O and no clock of its own.

An attempt waits *hot*, in the worker, where a wake-up reaches it within milliseconds. But its
start-to-close timeout runs meanwhile, so after a while it yields: it parks its place in line and comes back
as the next attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from lock_interceptor.store import Waiting

MIN_DELAY = 1.0
"""Seconds: the server does not come back sooner, whatever it is told."""
MAX_DELAY = 60.0
LAST_WORDS = 0.3
"""Seconds before a timeout at which the last attempt reports who held the lock."""
SHUTDOWN_DELAY = timedelta(seconds=1)
KEEP_PLACE = 600.0
"""Seconds for which a place outlives the attempt, for the server to start the next one."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What Temporal allows one attempt, in seconds from its start."""

    schedule_to_close: float
    """Until the activity fails for good."""
    start_to_close: float
    """Until this attempt fails."""
    attempts_left: int | None = None
    """How many more attempts there may be after this one; None without a limit."""


def hot_budget(allowance: Allowance, max_wait: float) -> float:
    """Seconds that this attempt may wait in the worker.

    A quarter of start-to-close, which leaves the body the rest, and no more than `max_wait`; half of it when
    attempts are limited, since a yield uses one up; to the end when the next attempt would come too late.
    """
    until_end = min(allowance.schedule_to_close, allowance.start_to_close) - LAST_WORDS
    if allowance.attempts_left is None:
        budget = min(max_wait, allowance.start_to_close / 4)
    else:
        budget = allowance.start_to_close / 2
    too_late_to_return = allowance.schedule_to_close - budget < 2 * MIN_DELAY
    return max(until_end if too_late_to_return else min(budget, until_end), 0.0)


def expected_wait(waiting: Waiting, limit: int) -> float | None:
    """Seconds until it is this waiter's turn, if holders go on as they did; None if nobody knows yet."""
    if waiting.mean_hold is None:
        return None
    turns = (waiting.ahead + 1) / limit
    settling = waiting.settling.total_seconds() if waiting.settling else 0.0
    return turns * waiting.mean_hold.total_seconds() + settling


def retry_delay(waiting: Waiting | None, limit: int, until_deadline: float, default: float) -> timedelta:
    """When the next attempt should come: just before its turn, and never past the deadline.

    A delay past schedule-to-close would fail the activity at once.
    """
    expected = None if waiting is None else expected_wait(waiting, limit)
    delay = min(max((expected if expected is not None else default) * 0.9, MIN_DELAY), MAX_DELAY)
    return timedelta(seconds=max(min(delay, until_deadline - 2 * MIN_DELAY), MIN_DELAY))


def may_return(allowance: Allowance, until_deadline: float) -> bool:
    """Whether another attempt can follow one that yields now."""
    return allowance.attempts_left != 0 and until_deadline > MIN_DELAY


def next_poll(waiting: Waiting, interval: float, jitter: float) -> float:
    """Seconds until a waiter that nothing woke asks again; `jitter` is from 0 to 1.

    At the end of the nearest lease or of the grace, if that is sooner than the interval.
    """
    delay = interval * (0.8 + 0.2 * jitter)
    for change in (waiting.next_expiry, waiting.settling):
        if change is not None:
            delay = min(delay, change.total_seconds() + 0.02 + 0.1 * jitter)
    return delay


def presence(interval: float) -> timedelta:
    """How long a waiter counts as present after it asked: it may miss two polls."""
    return timedelta(seconds=max(3 * interval, 3.0))


def keep_place(allowance: Allowance) -> timedelta:
    """How long the place is kept: while this attempt lasts and the next one is on its way."""
    seconds = min(allowance.schedule_to_close, allowance.start_to_close + KEEP_PLACE)
    return timedelta(seconds=max(seconds, MIN_DELAY))
