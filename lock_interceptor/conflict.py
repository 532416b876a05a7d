"""``on_conflict="fail"``: what an activity is told that does not wait. Pure policy, like `waiting`."""

from __future__ import annotations

from datetime import timedelta

from lock_interceptor.errors import LockBusy, LockNotAcquired
from lock_interceptor.store import Claim, Waiting
from lock_interceptor.waiting import MAX_DELAY, MIN_DELAY


def refusal(claim: Claim, waiting: Waiting, until_deadline: float) -> LockBusy | LockNotAcquired:
    """`LockBusy` if somebody else runs, or is about to, and an error to be retried if nobody does.

    An earlier attempt of the same activity is nobody else: it died with its worker or is being stopped, and
    its slot is free when its lease ends. And nobody need run when nothing is granted after a failover.

    Args:
        claim: that was not granted.
        waiting: what the store said, without standing in line.
        until_deadline: seconds until schedule-to-close.
    """
    lock, others = claim.lock, waiting.held - waiting.own
    if others + waiting.place - 1 >= claim.limit:
        return LockBusy(f"lock {lock} is not free: {waiting.held} of {claim.limit} held")
    reasons: list[str] = []
    left = 0.0
    if waiting.held >= claim.limit and waiting.own_expiry is not None:
        left = waiting.own_expiry.total_seconds()
        reasons.append(f"an earlier attempt of this activity still holds it; its lease ends in {left:.0f} s")
    if waiting.settling is not None:
        settled = waiting.settling.total_seconds()
        left = max(left, settled)
        reasons.append(f"nothing is granted for {settled:.0f} s after a failover or restart")
    latest = min(MAX_DELAY, until_deadline - 2 * MIN_DELAY)
    delay = timedelta(seconds=max(min(left, latest), MIN_DELAY))
    return LockNotAcquired(f"lock {lock}: {', and '.join(reasons) or 'it is just being given back'}", delay)
