"""What a process of `fault_load` does, and in what it differs from others."""

import functools
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from lock_interceptor.redis_store import scripts
from lock_interceptor.redis_store.scripts import Script


@dataclass(frozen=True)
class LoadLock:
    """A lock, and how it is used."""

    name: str
    limit: int
    hold: tuple[float, float] = (0.01, 0.1)
    """Seconds that a body takes, from and to."""


@dataclass(frozen=True)
class Plan:
    """What one process does."""

    locks: tuple[LoadLock, ...]
    clients: int
    """Client number n takes lock number n of the list, from the beginning again at its end."""
    max_wait: float
    """Seconds that an attempt waits before it yields."""
    wall_clock_off: float = 0.0
    """Seconds by which this process is wrong about the time of day."""
    careless: bool = False
    """All bodies are threads, and none of them ever looks whether its lease is lost."""
    other_scripts: bool = False
    """This process has another version of the scripts."""

    def be_different(self) -> None:
        """Make this process what it is to be; before it takes part in a history."""
        if self.other_scripts:
            scripts.load = _other_version(scripts.load)  # type: ignore[assignment]
        if self.wall_clock_off:
            _step_wall_clock(self.wall_clock_off)


def _step_wall_clock(seconds: float) -> None:
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + seconds  # type: ignore[assignment]
    time.time_ns = lambda: right_ns() + int(seconds * 1e9)  # type: ignore[assignment]


def _other_version(load: Callable[[str], Script]) -> Callable[[str], Script]:
    @functools.cache
    def other(name: str) -> Script:
        text = load(name).text + "\n-- of another version\n"
        return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

    return other
