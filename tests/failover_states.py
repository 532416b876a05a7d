"""A lock, its owners and its servers when the primary fails: what a state of the model is.

Time passes in ticks, and all that happens between two ticks happens at one instant. A lease is over at the
tick at which nothing is left of it. What makes the model small makes it no milder:

- Requests are answered at once. One that takes longer is believed for less time, since a lease counts from
  before the request was sent; a lost one is an answer that is never heard.
- A replica gets everything at some moment or nothing, at any moment or never. So it can be at each point of
  the primary's history at which the connection may break.
- Every owner may ask every server that takes writes, on whichever side of a partition it is.
- All clocks run alike: the margin by which a lease ends earlier at its owner is for when they do not.

The servers are A, the primary at first, B, which will be promoted, and perhaps C, which stays with A.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

FOREVER = range(sys.maxsize)
NEVER = range(0)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is given. All times are ticks."""

    slots: int = 1
    owners: int = 3
    leases: tuple[int, ...] = (3,)
    """An owner asks for one of these."""
    replicas: int = 1
    known: bool = True
    """Whether the lock's key is on all servers at first. If not, the first grant creates it."""
    prompt: bool = False
    """Whether replicas are less than a tick behind. If not, they may be behind for ever."""
    writes: range = FOREVER
    """When the primary takes writes, counted from the fault: NEVER if that is a crash."""
    promoted: int = 1
    """B is promoted so long after the fault, or later."""
    empty: bool = False
    """Whether the one promoted has lost everything: a restart without persistence."""
    faults: int = 1
    """The old primary becomes a replica of the new one, and that one fails in turn."""
    grace: float | None = None
    """None: as acquire.lua has it, the longest lease noted or asked for."""
    confirm_grants: int = 0
    confirm_renewals: int = 0
    """Replicas that WAIT is given for an answer to a grant, to a renewal."""
    insists: tuple[str, ...] = ()
    """On the confirmation of which answers: "creation" of the key, "grant", "renewal". Others count without
    it as soon as WAIT is over, which is within a tick."""


class Asked(NamedTuple):
    """An answer that is not heard yet: WAIT goes on."""

    left: int
    server: int
    needs: int
    insists: bool


class Owner(NamedTuple):
    """One acquisition: what its worker believes, and what each server has of it, in ticks left."""

    records: tuple[int, ...]
    lease: int = 0
    believes: int = 0
    """So long it takes the lock for its own: the body runs."""
    asked: Asked | None = None
    over: bool = False
    """It has believed, or has given up; it never asks again."""


class Key(NamedTuple):
    """The bookkeeping of the lock's key on one server."""

    current: bool
    """Whether its epoch is the server's own replication id."""
    grace: float
    longest: int


class State(NamedTuple):
    """Everything at one instant."""

    owners: tuple[Owner, ...]
    keys: tuple[Key | None, ...]
    faults: int
    since: int | None = None
    """Ticks since the fault."""
    promoted: bool = False


def begin(setup: Setup) -> State:
    """Nobody has asked yet."""
    servers = 1 + setup.replicas
    key = Key(current=True, grace=0, longest=setup.leases[0]) if setup.known else None
    return State((Owner((0,) * servers),) * setup.owners, (key,) * servers, setup.faults)


def believing(state: State) -> int:
    """How many take the lock for theirs."""
    return sum(owner.believes > 0 for owner in state.owners)


def in_order(state: State) -> State:
    """The same with the owners sorted: which is which makes no difference."""
    return state._replace(owners=tuple(sorted(state.owners, key=_sortable)))


def _sortable(owner: Owner) -> tuple[Any, ...]:
    return (*owner[:3], owner.asked or (), owner.over)  # None does not sort


def replaced(state: State, number: int, owner: Owner) -> State:
    """One owner is another."""
    return state._replace(owners=changed(state.owners, number, owner))


def changed(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    """One value is another."""
    return (*values[:at], value, *values[at + 1 :])


def copied(state: State, source: int, to: int) -> State:
    """A replica is up to date."""
    owners = (
        owner._replace(records=changed(owner.records, to, owner.records[source])) for owner in state.owners
    )
    return state._replace(owners=tuple(owners), keys=changed(state.keys, to, state.keys[source]))
