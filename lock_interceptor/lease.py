"""What a locked body knows of its lock: `Lease` and `current_lease`.

Needs the standard library only, because workflow files import activity modules.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta

from lock_interceptor.errors import LockConfigurationError, LockLost


def clock() -> float:
    """Seconds on a clock that never steps, shared by all processes of a machine.

    It goes on while the machine sleeps where the system offers that, since the lease in Redis does too.
    """
    return _read_clock()


if hasattr(time, "CLOCK_BOOTTIME"):

    def _read_clock() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
else:  # pragma: no cover - not on Linux
    _read_clock = time.monotonic


class Lease:
    """One grant of one lock to one attempt of an activity.

    Attributes:
        name: the lock's name, as in `needs_lock`.
        key: what the lock's ``key`` function returned, or None.
        token: the fencing token, strictly increasing from grant to grant of one lock. With ``max_locks``
            above 1 compare it per `slot`.
        slot: this holder's seat, 0 to max_locks-1, unique among the live holders.
    """

    def __init__(
        self, name: str, token: int, slot: int, *, key: str | None = None, expires: float, deadline: float
    ) -> None:
        """Create a lease; `expires` and `deadline` are readings of `clock`."""
        self.name = name
        self.key = key
        self.token = token
        self.slot = slot
        self._expires = expires
        self._deadline = deadline
        self._final = expires >= deadline
        self._lost_because: str | None = None
        self._show: Callable[[float], object] | None = None
        self._read: Callable[[], float] | None = None

    def __repr__(self) -> str:
        state = "lost" if self.lost else "held"
        return f"<Lease {self.label} token={self.token} slot={self.slot} {state}>"

    @property
    def label(self) -> str:
        """The lock as people read it: ``name`` or ``name[key]``."""
        return label(self.name, self.key)

    @property
    def expires_at(self) -> datetime:
        """When the lease ends unless it is renewed again, by this machine's wall clock, in UTC."""
        return _wall(self.end)

    @property
    def deadline(self) -> datetime:
        """The end of ``schedule_to_close_timeout``, beyond which the lease is never renewed, in UTC."""
        return _wall(self._deadline)

    @property
    def lost(self) -> bool:
        """Whether the lease has ended: work done from now on is not protected by the lock."""
        return self._lost_because is not None or clock() >= self.end

    def raise_if_lost(self) -> None:
        """Raise `LockLost` if the lease has ended; for loops in threaded and process activities.

        Raises:
            LockLost: the lease has ended.
        """
        if self.lost:
            raise LockLost(f"lock {self.label} was lost while its body ran: {self.lost_because}")

    @property
    def lost_because(self) -> str:
        """Why the lease was lost, for messages."""
        if self._lost_because is not None:
            return self._lost_because
        if self._final and (self._read is None or self.end >= self._deadline):
            return "schedule_to_close_timeout ran out"
        return "its lease ended before a renewal got through"

    def extend(self, expires: float, *, final: bool = False) -> bool:
        """Move the end of the lease; False if it had ended already, which cannot be undone. For the keeper.

        `final` says that the deadline allows no more renewals.
        """
        if self.lost:
            return False
        self._expires = expires
        self._final = final
        self._moved(expires)
        return True

    def lose(self, reason: str) -> None:
        """End the lease now. For the keeper."""
        if self._lost_because is None:
            self._lost_because = reason
            self._moved(-math.inf)

    @property
    def end(self) -> float:
        """When the lease ends, as a reading of `clock`. For the worker."""
        return self._expires if self._read is None else self._read()

    def show(self, show: Callable[[float], object] | None) -> None:
        """Call this with the end of the lease whenever it moves, from whichever thread moves it.

        It is ``-inf`` once the lease is lost. For a worker that shows the lease to another process.
        """
        self._show = show

    def watch(self, read: Callable[[], float]) -> None:
        """From now on the lease ends when this says. For the process to which a worker shows it."""
        self._read = read

    def _moved(self, end: float) -> None:
        if self._show is not None:
            self._show(end)

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends by this machine's clock, 0 or less when it has."""
        return self.end - clock()

    @property
    def until_deadline(self) -> float:
        """Seconds until `deadline`."""
        return self._deadline - clock()

    def for_other_process(self) -> Lease:
        """A copy that a process pool can carry. It knows the deadline only, until it can `watch`."""
        return Lease(
            self.name, self.token, self.slot, key=self.key, expires=self._deadline, deadline=self._deadline
        )


def label(name: str, key: str | None) -> str:
    """A lock's name as people read it."""
    return printable(name if key is None else f"{name}[{key}]")


def printable(text: str) -> str:
    """The text with escapes in place of what a terminal would obey or a log take for a new line."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def _wall(reading: float) -> datetime:
    try:
        return datetime.now(UTC) + timedelta(seconds=reading - clock())
    except OverflowError:  # infinite, or in the year 10000
        return datetime.max.replace(tzinfo=UTC)


held_leases: ContextVar[tuple[Lease, ...]] = ContextVar("lock_interceptor.held_leases", default=())
"""The leases of the running attempt, set by the guard around the body."""


def current_lease(name: str | None = None) -> Lease:
    """Return the lease under which the running activity holds its lock.

    Args:
        name: which one, for an activity with stacked locks: the lock's name, or ``name[key]``.

    Raises:
        LockConfigurationError: nothing is held here, or `name` does not tell which one is meant.
    """
    leases = held_leases.get()
    matching = [
        lease for lease in leases if name is None or lease.name == name or lease.label == printable(name)
    ]
    if len(matching) == 1:
        return matching[0]
    if not leases:
        raise LockConfigurationError(
            "current_lease() was called where no lock is held: tag the activity with @needs_lock and pass "
            "LockInterceptor() to its Worker (a thread that the activity starts itself does not inherit "
            "the lease: hand it over)"
        )
    held = ", ".join(repr(lease.label) for lease in leases)
    if name is None:
        raise LockConfigurationError(f"this activity holds several locks, name one of them: {held}")
    problem = "is held more than once" if matching else "is not held"
    raise LockConfigurationError(f"current_lease({name!r}): that lock {problem} here; held are: {held}")
