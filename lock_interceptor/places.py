"""How many bodies fit into a worker or an executor, and who gets the next place.

Knows neither the store nor Temporal.
"""

from __future__ import annotations

import bisect
import contextlib
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator

_mutex = threading.Lock()
"""One for all: a body takes all the places that it needs at once, or none."""


class Places:
    """Places for so many bodies at once. Safe to use from several threads."""

    def __init__(self, size: float) -> None:
        """Create places for `size` bodies."""
        self.size = size
        self.taken = 0
        """How many bodies have a place."""
        self.running = 0
        """How many of those have their lock, or need none."""
        self.waiting: dict[BodyPlace, None] = {}
        """Who waits here, in the order of arrival; one that asks for its lock has a place meanwhile."""

    def next(self) -> BodyPlace | None:
        """Who gets the next place.

        Urgent ones first, then in the order of arrival; who waits for one lock, in the order of its line.
        For who has the mutex.
        """
        if self.taken >= self.size:
            return None
        without = [body for body in self.waiting if not body.taken]
        present = defaultdict[object, list[int]](list)
        for body in without:
            if body.present:
                bisect.insort(present[body.lock], body.ticket)
        first: dict[object, BodyPlace] = {}
        for body in without:
            # those of its lock that are present and before it may want these places any moment
            before = 0 if body.present else bisect.bisect_left(present.get(body.lock, ()), body.ticket)
            if body.wants and body.free > before:
                line = body if body.lock is None else body.lock
                if line not in first or body.ticket < first[line].ticket:
                    first[line] = body
        return min(first.values(), key=lambda body: not body.urgent, default=None)


class BodyPlace:
    """The place of one attempt's body in all that it needs; without needs there always is one.

    A body takes its place before the lock is asked for, so that no lock waits for a place. While others only
    ask, a waiter that wants a place goes on being present in its lock's line; while bodies have all places it
    is parked, and so in nobody's way.
    """

    def __init__(self, *needs: Places, urgent: bool = False) -> None:
        """Create a place that is not taken yet.

        Args:
            needs: where a place is needed.
            urgent: served before those that are not.
        """
        self._needs = needs
        self.urgent = urgent
        self.taken = False
        """It has its place."""
        self.wants = False
        """It waits for its place."""
        self.lock: object = None
        """For which lock it stands in line; None if for none."""
        self.ticket = 0
        """Its place in that line, lower first."""
        self.present = False
        """It counts as present in that line, and may be called any moment."""
        self._running = False
        self.call: Callable[[], object] = _nothing

    @property
    def free(self) -> float:
        """How many places there are for bodies that need the same."""
        return min((need.size - need.taken for need in self._needs), default=float("inf"))

    @property
    def full(self) -> bool:
        """Whether bodies have all places, so that there will be none before one of them ends."""
        return any(need.running >= need.size for need in self._needs)

    def take(self) -> bool:
        """Take the place if there is one now. Returns whether it has it."""
        with _mutex:
            if not self.taken and self.free > 0:
                self.take_now()
            return self.taken

    def run(self) -> None:
        """The body has its lock: it keeps the place until it is done."""
        with _mutex:
            if self._running:
                return
            self._running = True
            for need in self._needs:
                need.running += 1
            # those that waited for others to have asked have to know
            wanting = (body for need in self._needs for body in need.waiting if body.wants)
            called = list(wanting) if self.full else []
        _tell(called)

    def stand(self, lock: object, ticket: int, *, present: bool) -> None:
        """Note where it stands in line, as it was told just now."""
        with _mutex:
            self.lock, self.ticket, self.present = lock, ticket, present

    def give_back(self, *, denied: bool = False) -> None:
        """Give the place back if it has one; if its request was `denied`, only if it holds no other lock."""
        with _mutex:
            if not self.taken or (denied and self._running):
                return
            for need in self._needs:
                need.taken -= 1
                need.running -= self._running
            self.taken = self._running = False
            called = _hand_on(self._needs)
        _tell(called)

    @contextlib.contextmanager
    def waiting(self, call: Callable[[], object]) -> Iterator[None]:
        """While entered, it waits here: `call` is called, from any thread, when `want` may have an answer."""
        with _mutex:
            self.call = call
            for need in self._needs:
                need.waiting[self] = None
        try:
            yield
        finally:
            with _mutex:
                self.wants = self.present = False
                self.call = _nothing
                for need in self._needs:
                    need.waiting.pop(self, None)
                called = _hand_on(self._needs)
            _tell(called)

    def want(self) -> bool:
        """Have the place, now or as soon as it is this one's turn. Returns whether it has it now."""
        with _mutex:
            self.wants = not self.taken
            if not self._needs:
                self.take_now()
            called = _hand_on(self._needs) if self.wants else []
            taken = self.taken
        _tell(body for body in called if body is not self)
        return taken

    async def until_taken(self, pause: Callable[[], Awaitable[object]], *, or_full: bool = False) -> None:
        """Want the place until it is taken, or bodies have all if `or_full`; `pause` waits for a call."""
        was_called = self.wants
        self.want()
        while not self.taken and not (or_full and self.full):
            await pause()
        if or_full and not self.taken and not was_called:
            self._call_others()

    def _call_others(self) -> None:
        """Let others that are present for the lock see that bodies have all places.

        Otherwise those who wait in another worker would have to wait until each of them had been woken.
        """
        with _mutex:
            waiting = (body for need in self._needs for body in need.waiting)
            fellows = [body for body in waiting if body.lock == self.lock and body.present]
            called = [body for body in fellows if not body.wants and not body.taken]
            for body in called:
                body.wants = True
        _tell(called)

    def take_now(self) -> None:
        """For who has the mutex, and knows that there is one."""
        self.taken, self.wants = True, False
        for need in self._needs:
            need.taken += 1


def _hand_on(places: Iterable[Places]) -> list[BodyPlace]:
    """Give free places to those whose turn it is. Returns whom to tell."""
    served = []
    for each in places:
        while (body := each.next()) is not None:
            body.take_now()
            served.append(body)
    return served


def _tell(bodies: Iterable[BodyPlace]) -> None:
    for body in bodies:
        body.call()


def _nothing() -> None:
    pass
