"""`WaitingRoom`: who waits inside one worker. A bounded number, and those who are nearest to their turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

MAX_WAITERS = 25
"""How many wait in a worker where each of them occupies a permit that other activities want too."""


@dataclass(eq=False, slots=True)
class Seat:
    """One waiter's place in the room."""

    turn: float
    """Seconds until its turn, as it was told last; what the room is ordered by."""
    stays: bool = False
    """It is never asked to leave."""
    evicted: bool = False
    """Somebody nearer to the front needs the seat: park, and leave."""
    on_eviction: Callable[[], object] | None = None
    """Called when that happens, from the thread of whoever needs it."""


class WaitingRoom:
    """Bounds how many activities wait in a worker, since each of them occupies a permit.

    Safe to use from several threads.
    """

    def __init__(self, size: int) -> None:
        """Create a room for `size` waiters."""
        self.size = size
        self.on_change: Callable[[], None] | None = None
        """Called whenever somebody comes or goes, from the thread of who does."""
        self._lock = threading.Lock()
        self._seats: dict[Seat, None] = {}  # a set in order of arrival

    @property
    def occupied(self) -> int:
        """How many wait here, those included who have been asked to leave."""
        return len(self._seats)

    def enter(self, turn: float, *, stays: bool = False) -> Seat | None:
        """Take a seat; None if the room is full of waiters that are nearer to their turn.

        If it is full and somebody is farther from the front, that one is asked to leave.

        Args:
            turn: seconds until it is this waiter's turn.
            stays: it cannot come back later, so it gets a seat in any case, and keeps it.
        """
        seat, farthest = Seat(turn, stays), None
        with self._lock:
            staying = [other for other in self._seats if not other.evicted]
            if len(staying) >= self.size:
                movable = (other for other in staying if not other.stays)
                farthest = max(movable, key=lambda other: other.turn, default=None)
                if not stays and (farthest is None or farthest.turn <= turn):
                    return None
                if farthest is not None:
                    farthest.evicted = True
            self._seats[seat] = None
        if farthest is not None and farthest.on_eviction is not None:
            farthest.on_eviction()
        self._changed()
        return seat

    def leave(self, seat: Seat) -> None:
        """Give the seat back."""
        with self._lock:
            self._seats.pop(seat, None)
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()
