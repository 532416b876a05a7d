"""`WaitingRoom`: who waits inside one worker. A bounded number, and those who are nearest to their turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lock_interceptor.places import BodyPlace

MAX_WAITERS = 25
"""How many wait in a worker where each of them occupies a permit that other activities want too."""

FRESH = 1.0
"""Seconds for which it can be relied on what a waiter was told."""


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
    body: BodyPlace = field(default_factory=BodyPlace)
    """Where its body will run: with a place there it counts among the bodies, also while it only asks."""


class WaitingRoom:
    """Bounds how many activities wait in a worker, since each of them occupies a permit.

    Safe to use from several threads.
    """

    def __init__(self, size: int) -> None:
        """Create a room for `size` waiters."""
        self.size = size
        self.on_change: Callable[[], None] | None = None
        """Called whenever somebody comes or goes, or asked in vain; from the thread of who does."""
        self._lock = threading.Lock()
        self._seats: dict[Seat, None] = {}  # a set in order of arrival

    @property
    def half_empty(self) -> bool:
        """Whether there is so much space that nobody need be sent away for what is expected."""
        return 2 * self.occupied < self.size

    @property
    def occupied(self) -> int:
        """How many wait here, those included who have been asked to leave."""
        return len(self._seats)

    @property
    def without_place(self) -> int:
        """How many wait here and have no place for their body; at most the size of the room."""
        with self._lock:
            return min(sum(not seat.body.taken for seat in self._seats), self.size)

    def enter(
        self, turn: float, *, stays: bool = False, guessed: bool = False, body: BodyPlace | None = None
    ) -> Seat | None:
        """Take a seat; None if the room is full of waiters that are nearer to their turn.

        If it is full and somebody is farther from the front, that one is asked to leave.

        Args:
            turn: seconds until it is this waiter's turn.
            stays: it cannot come back later, so it gets a seat in any case, and keeps it.
            guessed: nobody knows yet how long holders take.
            body: where its body will run.
        """
        seat = Seat(turn, stays, guessed, body=body or BodyPlace())
        with self._lock:
            staying = self._staying()
            nearest = stays or any(other.turn > turn for other in staying if not other.stays)
            if len(staying) >= self.size and not nearest:
                return None
            self._seats[seat] = None
            called = self._make_room()
        _call(called)
        self._changed()
        return seat

    def tell(self, seat: Seat, turn: float, *, guessed: bool = False) -> None:
        """Note what this waiter was told now."""
        with self._lock:
            seat.turn, seat.guessed, seat.told = turn, guessed, time.monotonic()
            called = self._make_room()
        _call(called)
        self._changed()

    def leave(self, seat: Seat) -> None:
        """Give the seat back."""
        with self._lock:
            self._seats.pop(seat, None)
        self._changed()

    def _staying(self) -> list[Seat]:
        return [seat for seat in self._seats if not seat.evicted]

    def _make_room(self) -> list[Seat]:
        """Whom to call: the farthest have to leave if there are too many.

        Nobody has to leave for what was known long ago, when the line was longer: then those who seem to be
        farthest are to ask again, and there may be too many here until they have.
        """
        staying = self._staying()
        too_many = len(staying) - self.size
        if too_many <= 0:
            return []
        latest = max(staying, key=lambda seat: seat.told)
        movable = (seat for seat in staying if not seat.stays)
        farthest = sorted(movable, key=lambda seat: seat.turn, reverse=True)[:too_many]
        for seat in farthest:
            seat.evicted = latest.told - seat.told <= FRESH and latest.guessed == seat.guessed
        return farthest

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()


def _call(seats: list[Seat]) -> None:
    for seat in seats:
        if seat.on_eviction is not None:
            seat.on_eviction()
