"""How long to wait, and where: pure policy, no I/O and no clock of its own.

An attempt waits *hot*, in the worker, where a wake-up reaches it within milliseconds. That occupies a permit,
and its start-to-close timeout runs meanwhile. So it waits there when its turn is near, and *cold* otherwise:
it parks its place in line, and comes back as the next attempt shortly before its turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from lock_interceptor.store import LockId, Waiting

MIN_DELAY = 1.0
"""Seconds: the server does not come back sooner, whatever it is told."""
MAX_DELAY = 60.0
NEAR = 2
"""Waiters per slot that are present whatever is expected: estimates are wrong, and a slot should not wait."""
EARLY = 0.2
"""Part of the expected wait by which a parked waiter comes back early, and the least of it in seconds."""
EARLY_SECONDS = 2.0
AWAY = 6.0
"""Seconds for which the foremost parked waiter stays away at most: ten returns a minute, of two requests."""
AWAY_PER_PARKED = 0.1
"""Seconds for each parked one ahead, if that is longer: a long line asks little more than a short one."""
AWAY_PER_HOLD = 0.25
"""Part of a usual hold, if that is longer: to miss so much of a turn does not matter."""
AWAY_PER_WAITED = 0.75
"""Part of the time that it has waited, if that is shorter: what it was told at first may change soon."""
LAST_WORDS = 0.3
"""Seconds before a timeout at which the last attempt reports who held the lock."""
MIN_PRESENCE = 2.0
"""Seconds: time for a new connection."""
AT_ONCE = timedelta(seconds=MIN_DELAY)
"""For one that could go on waiting, but not in this attempt or this worker."""
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


def has_to_stay(allowance: Allowance, budget: float) -> bool:
    """Whether a yield would cost what cannot be had back: one of few attempts, or the last chance."""
    return allowance.attempts_left is not None or allowance.schedule_to_close - budget < 2 * MIN_DELAY


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


def is_near(waiting: Waiting, limit: int) -> bool:
    """Whether so few of those ahead are present that this waiter should be there when a slot is free."""
    return waiting.place <= NEAR * limit


def waits_hot(waiting: Waiting, limit: int, budget_left: float) -> bool:
    """Whether to wait in the worker, with so many seconds left to do so."""
    expected = expected_wait(waiting, limit)
    return is_near(waiting, limit) or expected is None or expected <= budget_left


def renews_budget(waiting: Waiting, limit: int, budget: float, left: float) -> bool:
    """Whether to yield and come straight back now, rather than have the budget end just before the turn."""
    expected = expected_wait(waiting, limit)
    used_up = left < budget / 2 and not is_near(waiting, limit)
    return used_up and expected is not None and left < 2 * expected  # it may well take twice as long


def turn(waiting: Waiting, limit: int) -> float:
    """Seconds until this waiter's turn; a guess where nobody has released yet, good enough to compare by."""
    expected, turns = expected_wait(waiting, limit), (waiting.ahead + 1) / limit
    return turns if expected is None else max(expected, turns / 1000)


def longest_absence(waiting: Waiting, waited: float) -> float:
    """Seconds for which a parked waiter stays away at most, since what is expected may be far too long.

    One hold that took minutes says little of the next one. So those who are parked come back in turn, the
    foremost most often, and a slot that is free early soon finds somebody to take it.
    """
    parked = waiting.ahead + 1 - waiting.place
    hold = 0.0 if waiting.mean_hold is None else waiting.mean_hold.total_seconds()
    return min(AWAY_PER_WAITED * waited, max(AWAY, AWAY_PER_PARKED * parked, AWAY_PER_HOLD * hold))


def retry_delay(
    waiting: Waiting, limit: int, budget: float, *, waited: float, until_deadline: float
) -> timedelta:
    """When the next attempt of one that has waited for so long, and is parked now, should come.

    Shortly before its turn: early enough to be there when the turn comes a little sooner, and late enough not
    to spend the next attempt's budget. Never past the deadline, which would fail the activity at once.
    """
    expected, delay = expected_wait(waiting, limit), longest_absence(waiting, waited)
    if expected is not None:
        delay = min(delay, expected - min(budget / 2, max(EARLY * expected, EARLY_SECONDS)))
    latest = min(MAX_DELAY, until_deadline - 2 * MIN_DELAY)
    return timedelta(seconds=max(min(delay, latest), MIN_DELAY))


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


def poll_interval(interval: float, lease: float) -> float:
    """Seconds between polls: often enough that a dead waiter is missed about as soon as a dead holder."""
    return min(interval, lease / 3)


def presence(interval: float) -> timedelta:
    """How long a waiter counts as present after it asked: it may miss two polls."""
    return timedelta(seconds=max(3 * interval, MIN_PRESENCE))


def keep_place(allowance: Allowance) -> timedelta:
    """How long the place is kept: while this attempt lasts and the next one is on its way."""
    seconds = min(allowance.schedule_to_close, allowance.start_to_close + KEEP_PLACE)
    return timedelta(seconds=max(seconds, MIN_DELAY))


def explain(lock: LockId, limit: int, waiting: Waiting) -> str:
    """Why an activity waits, for whoever looks at it: lock, limit, place, expected wait and holders."""
    text = f"lock {lock}: {waiting.held} of {limit} held, place {waiting.ahead + 1} in line"
    if waiting.settling is not None:
        left = waiting.settling.total_seconds()
        text += f", nothing is granted for {left:.0f} s after a failover or restart"
    expected = expected_wait(waiting, limit)
    if expected is not None:
        text += f", expected wait about {max(round(expected), 1)} s or more"
    if waiting.holders:
        listed = [
            f"{holder.party} since {holder.held_for.total_seconds():.0f} s" for holder in waiting.holders
        ]
        more = [f"{waiting.held - len(listed)} more"] if waiting.held > len(listed) else []
        text += f"; held by {', '.join(listed + more)}"
    return text
