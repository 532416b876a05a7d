"""Set-ups for the model of failovers, with what has to come out of each, and why.

M is the time from the fault to the last write that the old primary takes, D to the promotion of a replica. A
"new lock" is one whose key is on no replica: it was never granted before, or not for so long that its key has
expired.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from failover_states import FOREVER, NEVER, Setup
from failover_steps import Step, search

LEASE = 3


@dataclass(frozen=True)
class Case:
    """A fault, what is done about it, and whether at most as many as there are slots believe to hold."""

    fault: str
    done: str
    safe: bool
    why: str
    setups: tuple[Setup, ...]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.fault}: {self.done}"

    @cached_property
    def found(self) -> list[tuple[Setup, int, list[Step] | None]]:
        """For each set-up how many states there are, and the shortest way to a broken promise."""
        return [(setup, *search(setup)) for setup in self.setups]

    @property
    def states(self) -> int:
        """States explored in all."""
        return sum(states for _, states, _ in self.found)


def safe(fault: str, done: str, why: str, *given: dict[str, Any]) -> Case:
    """One that has to be safe: also when the new primary fails in turn, and with two slots."""
    setup = Setup(**{name: value for one in given for name, value in one.items()})
    return Case(fault, done, True, why, (replace(setup, faults=2), replace(setup, slots=2, leases=(2,))))


def unsafe(fault: str, done: str, why: str, *given: dict[str, Any]) -> Case:
    """One that has to be unsafe."""
    return Case(fault, done, False, why, (Setup(**{k: v for one in given for k, v in one.items()}),))


# what is promoted after a restart is what the disk has, and the disk is a replica
RESTART = {"writes": NEVER, "promoted": 0}
CRASH = {"writes": NEVER, "promoted": 1}
CUT_OFF = {"writes": FOREVER, "promoted": 1}
CUT_OFF_IN_TIME = {"writes": range(2), "promoted": 1}
CUT_OFF_LATE = {"writes": range(4), "promoted": 1}
HANGS = {"writes": range(2, 3), "promoted": 1}

NEW = {"known": False}
TWO_REPLICAS = {"replicas": 2}
NO_GRACE = {"grace": 0}
FAILOVER = {"confirm_grants": 1}
NO_UNCONFIRMED_GRANT = {"confirm_grants": 1, "insists": ("grant",)}
STRICT = {"confirm_grants": 1, "confirm_renewals": 1, "insists": ("grant", "renewal")}
STRICT_OF_TWO = {**STRICT, **TWO_REPLICAS, "confirm_grants": 2, "confirm_renewals": 2}

CASES = [
    unsafe("restart", "no persistence", "everything is forgotten, the lock too", RESTART, {"empty": True}),
    safe("restart", "`appendfsync everysec`", "the grace outlasts what was forgotten", RESTART),
    unsafe("restart", "`everysec`, new lock", "nothing tells that there was a grant", RESTART, NEW),
    unsafe("restart", "`everysec`, `INFO` forbidden", "it goes unnoticed: no grace", RESTART, NO_GRACE),
    safe("restart", "`appendfsync always`, new lock", "nothing is forgotten", RESTART, STRICT, NEW),
    unsafe("crash", "no grace, as in other locks", "the last grants are forgotten", CRASH, NO_GRACE),
    safe("crash", "`primary`", "the grace outlasts what was forgotten", CRASH),
    unsafe("crash", "`primary`, new lock", "the new primary never heard of the lock", CRASH, NEW),
    safe(
        "crash",
        "`failover`, new lock, replica less than `WAIT` behind",
        "a grant counts when the replica has it",
        *(CRASH, FAILOVER, NEW, {"prompt": True}),
    ),
    unsafe(
        "crash",
        "`failover`, new lock, replica further behind",
        "after `WAIT` the grant counts all the same",
        *(CRASH, FAILOVER, NEW),
    ),
    unsafe(
        "crash",
        "`failover`, new lock, the replica that was slower is promoted",
        "the other one had confirmed",
        *(CRASH, FAILOVER, NEW, TWO_REPLICAS, {"prompt": True}),
    ),
    unsafe(
        "crash",
        "grace as long as the longest lease known, a longer one was forgotten",
        "the grace is over before the longer lease",
        *(CRASH, {"leases": (1, 3)}),
    ),
    unsafe("partition", "nothing", "two primaries grant", CUT_OFF, NO_GRACE),
    unsafe(
        "partition",
        "`min-replicas`, M <= D, no grace",
        "the last grants are forgotten",
        *(CUT_OFF_IN_TIME, NO_GRACE),
    ),
    unsafe("partition", "grace, no `min-replicas`", "the old primary goes on granting", CUT_OFF),
    safe(
        "partition",
        "grace, `min-replicas`, M <= D",
        "the grace outlasts what the old primary granted",
        CUT_OFF_IN_TIME,
    ),
    unsafe(
        "partition",
        "any grace, `min-replicas`, M > D",
        "a holder renews at the new primary, and the old one grants his slot",
        *(CUT_OFF_LATE, {"grace": math.inf}),
    ),
    unsafe(
        "partition",
        "`failover`, `min-replicas-to-write 1`, a replica stays with the old primary",
        "one replica is enough for it to go on",
        *(CUT_OFF, FAILOVER, TWO_REPLICAS),
    ),
    unsafe(
        "partition",
        "`failover`, `min-replicas`, M <= D, new lock",
        "cut off, a grant counts without a replica",
        *(CUT_OFF_IN_TIME, FAILOVER, NEW),
    ),
    unsafe(
        "partition",
        "the same, but the grant that makes the key has to be confirmed",
        "whoever asks next, or the same one again, finds the key and need not wait",
        *(CUT_OFF_IN_TIME, FAILOVER, NEW, {"insists": ("creation",)}),
    ),
    safe(
        "partition",
        "the same, but every grant has to be confirmed by all replicas",
        "no grant is forgotten, and the grace outlasts renewals",
        *(CUT_OFF_IN_TIME, NO_UNCONFIRMED_GRANT, NEW),
    ),
    Case(
        "partition",
        "the same, M > D and a grace of lease + M - D",
        True,
        "the old primary renews, but cannot grant",
        (Setup(**CUT_OFF_LATE, **NO_UNCONFIRMED_GRANT, **NEW, grace=LEASE + 2),),
    ),
    unsafe(
        "partition",
        "`WAIT` for one of two replicas, no grace",
        "the other one is promoted",
        *(CUT_OFF, STRICT, TWO_REPLICAS, NO_GRACE),
    ),
    unsafe(
        "partition",
        "`WAIT` for all replicas, grants only, no grace",
        "a renewal is forgotten",
        *(CUT_OFF, NO_UNCONFIRMED_GRANT, NO_GRACE),
    ),
    safe(
        "partition",
        "`WAIT` for all replicas, grants and renewals, no grace, new lock",
        "nothing that counts is forgotten",
        *(CUT_OFF, STRICT, NO_GRACE, NEW),
    ),
    safe("partition", "`strict`, new lock", "nothing that counts is forgotten", CUT_OFF, STRICT, NEW),
    Case(
        "partition",
        "`strict`, new lock, two replicas",
        True,
        "nothing that counts is forgotten",
        (Setup(**CUT_OFF, **STRICT_OF_TWO, **NEW),),
    ),
    unsafe(
        "partition",
        "`strict` that took one replica of two for all, new lock",
        "the one that it did not count is promoted",
        *(CUT_OFF, STRICT, TWO_REPLICAS, NEW),
    ),
    unsafe(
        "primary hangs and goes on",
        "`failover`, `min-replicas`",
        "it takes requests before it learns of the other primary: M > D",
        *(HANGS, FAILOVER),
    ),
    safe("primary hangs and goes on", "`strict`, new lock", "no replica confirms", HANGS, STRICT, NEW),
]


def smallest_grace(lease: int, until: int, promoted: int) -> float:
    """The smallest grace that is safe with M = `until` and D = `promoted`; not a number if none is."""
    for grace in (*range(2 * lease + 1), math.inf):
        setup = Setup(leases=(lease,), writes=range(until + 1), promoted=promoted, grace=grace)
        if search(setup)[1] is None:
            return grace
    return math.nan
