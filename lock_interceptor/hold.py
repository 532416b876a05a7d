"""`Hold`: a lock that is held, from its grant until it is over. What happens when it is lost stands here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from lock_interceptor import telemetry
from lock_interceptor.lease import Lease, clock
from lock_interceptor.store import Claim

_ending = threading.Lock()


def margin(length: float) -> float:
    """Seconds by which a lease ends earlier here than at the server: two clocks do not run alike."""
    return max(0.02 * length, min(0.5, 0.1 * length))


@dataclass(eq=False, slots=True)
class Hold:
    """Something held: the claim, the lease that the body sees, and whom to tell when it is lost."""

    claim: Claim
    lease: Lease
    length: float
    """Seconds that each renewal asks for."""
    on_lost: Callable[[], None]
    """Called once, from whichever thread finds the loss first."""
    ticket: int = 0
    """Place in line that the grant used up."""
    echo_possible: bool = False
    """A request for it was not answered, and may yet be executed."""
    _since: float | None = None
    """Since when it is held; None before, and once it is over."""

    def begin(self) -> None:
        """It is held from now on."""
        self._since = clock()
        telemetry.holding(self.claim)

    def lose(self, reason: str, *, gone: bool = False) -> None:
        """The lease ended before the lock was given back. The first call ends it and tells the body.

        The thread that renews, the watchdog of the body and whoever gives the lock back may all find out.

        Args:
            reason: for people.
            gone: the store itself said so.
        """
        if (since := self._end()) is None:
            return
        expired = self.lease.until_deadline > margin(self.length)
        self.lease.lose(reason)
        self.on_lost()
        telemetry.lost(self.claim, self.lease, why="gone" if gone else "expired" if expired else "timeout")
        telemetry.held(self.claim, since)

    def over(self) -> None:
        """It is held no more, if it ever was."""
        if (since := self._end()) is not None:
            telemetry.held(self.claim, since)

    def _end(self) -> float | None:
        """Since when it has been held, for the one that ends it: several threads may try."""
        with _ending:
            since, self._since = self._since, None
        return since
