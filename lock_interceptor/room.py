"""`WaitingRoom`: who waits inside one worker. A bounded number, and those who are nearest to their turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_WAITERS = 25
"""How many wait in a worker where each of them occupies a permit that other activities want too."""

FRESH = 1.0
"""Seconds for which it can be relied on what a waiter was told: those who are sent away come back as late."""


@dataclass(eq=False, slots=True)
class Seat:
    """One waiter's place in the room."""

    turn: float
    """Seconds until its turn, as it was told last; what the room is ordered by."""
    stays: bool = False
    """It is never asked to leave."""
    guessed: bool = False
    """Nobody knew how long holders take when `turn` was told."""
    told: float = field(default_factory=time.monotonic)
    """When `turn` was told."""
    evicted: bool = False
    """Somebody nearer to the front needs the seat: park, and leave."""
    on_eviction: Callable[[], object] | None = None
    """Called when that happens, or when it should ask again for its turn; from the thread of whoever came."""

    def tell(self, turn: float, *, guessed: bool = False) -> None:
        """Note what is known now."""
        self.turn, self.guessed, self.told = turn, guessed, time.monotonic()


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

    def enter(self, turn: float, *, stays: bool = False, guessed: bool = False) -> Seat | None:
        """Take a seat; None if the room is full of waiters that are nearer to their turn.

        If it is full and somebody is farther from the front, that one is asked to leave.

        Nobody has to leave for what was known long ago, when the line was longer: then those who seem to be
        farther away are told to ask again, and whoever wants a seat tries again later.

        Args:
            turn: seconds until it is this waiter's turn.
            stays: it cannot come back later, so it gets a seat in any case, and keeps it.
            guessed: nobody knows yet how long holders take.
        """
        seat, farthest = Seat(turn, stays, guessed), None
        outdated: list[Seat] = []
        with self._lock:
            staying = [other for other in self._seats if not other.evicted]
            if len(staying) >= self.size:
                movable = [other for other in staying if not other.stays]
                farthest = max(movable, key=lambda other: other.turn, default=None)
                if not stays:
                    if farthest is None or farthest.turn <= turn:
                        return None
                    outdated = [other for other in movable if other.turn > turn and _outdated(other, seat)]
                if farthest is not None and not outdated:
                    farthest.evicted = True
            if not outdated:
                self._seats[seat] = None
        for other in outdated or (farthest,):
            if other is not None and other.on_eviction is not None:
                other.on_eviction()
        if outdated:
            return None
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


def _outdated(seat: Seat, newcomer: Seat) -> bool:
    """Whether the two were told things that cannot be compared: an old one, or a guess and an estimate."""
    return newcomer.told - seat.told > FRESH or seat.guessed != newcomer.guessed
