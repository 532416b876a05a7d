"""By what a history is judged, and what broke while it was made."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .client_log import Note

BETWEEN = "overlaps between histories"
"""Beliefs that overlap because one server did not know what another one had granted."""


@dataclass(frozen=True, kw_only=True)
class Expectations:
    """What a run has to have exercised, and the bounds of what takes time, in seconds."""

    at_least: Mapping[str, int] = field(default_factory=dict)
    """By the name of a count. Grants are always expected."""
    at_most: Mapping[str, int] = field(default_factory=dict)
    poll: float = 6.0
    """Between two polls of a waiter that lives."""
    slack: float = 2.0
    """What a machine adds that is busy with nothing but this; see `on_this_machine`."""
    stop_margin: float = 1.0
    """How long a body may go on when its lease is lost and somebody else has the lock."""
    tidy: bool = True
    """Everybody gives back what it had and leaves the line, and at the end nothing is left."""

    @property
    def overlaps_are_no_surprise(self) -> bool:
        """Whether the test says how many overlaps between histories there may be."""
        return BETWEEN in self.at_least or BETWEEN in self.at_most

    def on_this_machine(self) -> "Expectations":
        """The same, with more slack in the measure in which processes have to wait for a core just now."""
        return replace(self, slack=self.slack * max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1))))

    def unmet(self, counts: Mapping[str, float]) -> list[str]:
        """What the run did not exercise, or too often."""
        least = {"grants": 1, "beliefs": 1, **self.at_least}
        few = [
            f"{name}: {counts.get(name, 0)}, expected at least {wanted}"
            for name, wanted in least.items()
            if counts.get(name, 0) < wanted
        ]
        return few + [
            f"{name}: {counts.get(name, 0)}, expected at most {wanted}"
            for name, wanted in self.at_most.items()
            if counts.get(name, 0) > wanted
        ]


@dataclass(frozen=True)
class Fault:
    """Something was broken for a while; if it is a worker, which one."""

    what: str
    start: float
    end: float
    process: int = 0


def faults(notes: Sequence[Note]) -> list[Fault]:
    """What was broken, in the order of the ends; what never healed stays broken."""
    found, began = [], {}
    for note in notes:
        if note.what in ("fault", "healed"):
            name = note.more["fault"], note.more.get("victim", 0)
            if note.what == "fault":
                began[name] = note.at
            else:
                found.append(Fault(name[0], began.pop(name), note.at, name[1]))
    found += [Fault(what, start, math.inf, process) for (what, process), start in began.items()]
    return sorted(found, key=lambda fault: fault.end)


def deaths(notes: Sequence[Note]) -> dict[int, float]:
    """When processes were killed."""
    return {note.more["victim"]: note.at for note in notes if note.what == "killed"}
