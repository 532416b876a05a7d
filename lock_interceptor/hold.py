"""`Hold`: something held, from its grant until it is over; what is counted and traced of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lock_interceptor import metrics, tracing
from lock_interceptor.lease import Lease, clock
from lock_interceptor.store import Claim

_ending = threading.Lock()


def margin(length: float) -> float:
    """Seconds by which a lease ends earlier here than at the server: two clocks do not run alike."""
    return max(0.02 * length, min(0.5, 0.1 * length))


@dataclass(eq=False, slots=True)
class Hold:
    """Something held: the claim, the lease that the body sees, and whom to tell when it is lost.

    Its methods but for `facts` are for the keeper.
    """

    claim: Claim
    lease: Lease
    length: float
    """Seconds that each renewal asks for."""
    on_lost: Callable[[], None]
    """Called in the keeper's thread."""
    ticket: int = 0
    """Place in line that the grant used up."""
    echo_possible: bool = False
    """A request for it was not answered, and may yet be executed."""
    _since: float | None = None
    """Since when it is held; None before, and once it is over."""

    def facts(self) -> dict[str, Any]:
        """What log events say of it, as flat keys."""
        lease = self.lease
        return {
            "lock": lease.label,
            "token": lease.token,
            "slot": lease.slot,
            **self.claim.party.as_dict(),
        }

    def begin(self) -> None:
        """It is held from now on."""
        self._since = clock()
        self.claim.metrics.change(metrics.HOLDING, 1)

    def lost(self, *, gone: bool = False) -> None:
        """It ended before it was given back; `gone` if the store said so."""
        if (since := self._end()) is None:
            return
        early = self.lease.until_deadline > margin(self.length)
        reason = "gone" if gone else "expired" if early else "timeout"
        self.claim.metrics.count(metrics.LOST, reason=reason)
        tracing.event("lock.lost", lock=self.lease.label, token=self.lease.token, reason=reason)
        self._count(since)

    def over(self) -> None:
        """It is held no more, if it ever was."""
        if (since := self._end()) is not None:
            self._count(since)

    def _end(self) -> float | None:
        """Since when it has been held, for the one that ends it: the worker's thread or the keeper's."""
        with _ending:
            since, self._since = self._since, None
        return since

    def _count(self, since: float) -> None:
        self.claim.metrics.observe(metrics.HELD, clock() - since)
        self.claim.metrics.change(metrics.HOLDING, -1)
