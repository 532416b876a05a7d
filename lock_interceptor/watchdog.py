"""`Watchdog`: tells a body that its lease has ended, at the latest when it ends, whatever else has failed.

Renewing has a thread of its own, which may fail to start, die or hang. So each attempt has a timer in the
event loop of its body. It reads the clock and nothing else: a renewed lease moves the timer on, any other
lease ends here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence

from lock_interceptor.hold import Hold
from lock_interceptor.renewing import Renewals

LONGEST_LOOK = 3600.0
"""Seconds after which it looks again at the latest."""


class Watchdog:
    """Watches the leases of one attempt. All but `notify` is for the event loop of its body."""

    def __init__(self, renewals: Renewals) -> None:
        self._renewals = renewals
        self._loop = asyncio.get_running_loop()
        self._holds: Sequence[Hold] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._interrupt: Callable[[], object] | None = None
        self._lost = False

    def notify(self) -> None:
        """A lease is lost. Safe to call from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and its body with it
            self._loop.call_soon_threadsafe(self._tell)

    @contextlib.contextmanager
    def watching(self, holds: Sequence[Hold]) -> Iterator[None]:
        """While entered, leases that end are lost, and `interrupting` has its effect."""
        self._holds = holds
        self._look()
        try:
            yield
        finally:
            self._holds = ()
            if self._timer is not None:
                self._timer.cancel()

    @contextlib.contextmanager
    def interrupting(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """While entered, call `interrupt` when a lease is lost, or at once if one is. It is called once."""
        self._interrupt = interrupt
        if self._lost:
            interrupt()
        try:
            yield
        finally:
            self._interrupt = None

    def _look(self) -> None:
        next_look = LONGEST_LOOK
        for hold in self._holds:
            lease = hold.lease
            if lease.lost:
                self._renewals.stop(hold)
                hold.lose(lease.lost_because)
                continue
            # a renewal was due when a third of the lease was over
            overdue = lease.remaining - hold.length / 2
            if overdue <= 0:
                self._renewals.attend()
            # several times until the end: what failed just now may work in a moment
            next_look = min(next_look, overdue if overdue > 0 else max(lease.remaining / 2, 0.01))
        if self._holds:
            self._timer = self._loop.call_later(max(next_look, 0.001), self._look)

    def _tell(self) -> None:
        # once: a second lost lease must not interrupt a body that is cleaning up
        if not self._lost:
            self._lost = True
            if self._interrupt is not None:
                self._interrupt()
