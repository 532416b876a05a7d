"""All that can happen in the model of `failover_states`, and a search through what may come of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from failover_states import (
    FOREVER,
    NEVER,
    Asked,
    Key,
    Owner,
    Setup,
    State,
    begin,
    believing,
    changed,
    copied,
    in_order,
    replaced,
)

Step = tuple[Any, ...]
Steps = Iterator[tuple[Step, State]]


def search(setup: Setup) -> tuple[int, list[Step] | None]:
    """How many states there are, and the shortest way to more beliefs than slots if there is one."""
    start = begin(setup)
    came_from: dict[State, tuple[State, Step] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for step, raw in steps(setup, state):
            after = in_order(raw)
            if after in came_from:
                continue
            came_from[after] = state, step
            if believing(after) > setup.slots:
                return len(came_from), way_to(came_from, after)
            queue.append(after)
    return len(came_from), None


def way_to(came_from: dict[State, tuple[State, Step] | None], state: State) -> list[Step]:
    """The steps that led to a state."""
    way = []
    while before := came_from[state]:
        state, step = before
        way.append(step)
    return way[::-1]


def steps(setup: Setup, state: State) -> Steps:
    """All that can happen next."""
    yield ("time passes",), tick(setup, state)
    for to in followers(setup, state, 0):
        yield ("is up to date", to), copied(state, 0, to)
    if state.since is None and state.faults:
        yield ("fails", 0), fault(setup, state)
    elif state.promoted:
        yield ("returns", 0), healed(setup, state)
    elif state.since is not None and state.since >= setup.promoted:
        yield ("is promoted", 1), promotion(setup, state)
    for number, owner in enumerate(state.owners):
        if owner in state.owners[:number]:
            continue  # it would go as with the other one
        if confirmed(setup, state, owner):
            yield ("hears", number), replaced(state, number, believes(owner, owner.asked.left))
        for server in (0, 1):
            if takes_writes(setup, state, server):
                yield from requests(setup, state, number, server)


def requests(setup: Setup, state: State, number: int, server: int) -> Steps:
    """What this owner can ask this server for. Those that are answered "no" change nothing here."""
    owner = state.owners[number]
    if not owner.over:
        for lease in (owner.lease,) if owner.lease else setup.leases:
            yield ("asks", number, server, lease), acquire(setup, state, number, server, lease)
    if not owner.records[server]:
        return
    if owner.believes:
        kept = owner._replace(records=changed(owner.records, server, owner.lease))
        insists = "renewal" in setup.insists
        renewed = answered(setup, state, kept, Asked(owner.lease, server, setup.confirm_renewals, insists))
        yield ("renews", number, server), replaced(state, number, renewed)
    gone = owner._replace(records=changed(owner.records, server, 0), believes=0, asked=None, over=True)
    yield ("gives up", number, server), replaced(state, number, gone)


def acquire(setup: Setup, state: State, number: int, server: int, lease: int) -> State:
    """What acquire.lua does."""
    owner, key = state.owners[number], state.keys[server]
    insists = "grant" in setup.insists
    if not owner.records[server]:
        held = sum(other.records[server] > 0 for other in state.owners)
        if key is None:
            key, insists = Key(current=True, grace=0, longest=0), insists or "creation" in setup.insists
        longest = max(key.longest, lease)
        if not key.current:
            key = key._replace(current=True, grace=longest if setup.grace is None else setup.grace)
        free = setup.slots - held
        if key.grace or free <= 0:
            return state._replace(keys=changed(state.keys, server, key))
        key = key._replace(longest=longest)
    holder = owner._replace(records=changed(owner.records, server, lease), lease=lease)
    holder = answered(setup, state, holder, Asked(lease, server, setup.confirm_grants, insists))
    return replaced(state, number, holder)._replace(keys=changed(state.keys, server, key))


def answered(setup: Setup, state: State, owner: Owner, asked: Asked) -> Owner:
    """An answer is heard, or has to be confirmed first. Nobody waits for replicas that are not there."""
    if asked.needs == 0 or not (asked.insists or followers(setup, state, asked.server)):
        return believes(owner, asked.left)
    return owner._replace(asked=asked)


def believes(owner: Owner, left: int) -> Owner:
    """It takes the lock for its own."""
    return owner._replace(believes=max(left, owner.believes), asked=None, over=True)


def confirmed(setup: Setup, state: State, owner: Owner) -> bool:
    """Whether WAIT can return, and the answer then counts."""
    asked = owner.asked
    if asked is None:
        return False
    having = sum(owner.records[at] >= asked.left for at in followers(setup, state, asked.server))
    return having >= asked.needs or (not asked.insists and asked.left < owner.lease)


def takes_writes(setup: Setup, state: State, server: int) -> bool:
    """Whether this server answers requests."""
    if server == 1:
        return state.promoted
    return state.since is None or state.since in setup.writes


def followers(setup: Setup, state: State, server: int) -> range:
    """Replicas that get what this server does."""
    if server == 1 or (state.since is not None and setup.writes == NEVER):
        return range(0)
    return range(1 if state.since is None else 2, 1 + setup.replicas)


def tick(setup: Setup, state: State) -> State:
    """Time passes."""
    if setup.prompt:
        for to in followers(setup, state, 0):
            state = copied(state, 0, to)
    ends = max(setup.promoted, 0 if setup.writes == FOREVER else setup.writes.stop)
    return state._replace(
        owners=tuple(map(older, state.owners)),
        keys=tuple(key and key._replace(grace=max(key.grace - 1, 0)) for key in state.keys),
        since=None if state.since is None else min(state.since + 1, ends),
    )


def older(owner: Owner) -> Owner:
    """A tick later. What is lost is lost: no answer that comes late brings it back."""
    left, asked = max(owner.believes - 1, 0), owner.asked
    asked = asked and asked.left > 1 and (left or not owner.over) and asked._replace(left=asked.left - 1)
    records = tuple(max(record - 1, 0) for record in owner.records)
    return owner._replace(records=records, believes=left, asked=asked or None)


def fault(setup: Setup, state: State) -> State:
    """The primary crashes, is cut off, or hangs."""
    state = state._replace(since=0, faults=state.faults - 1)
    return forgotten(state) if setup.writes == NEVER else state


def promotion(setup: Setup, state: State) -> State:
    """B becomes a primary, which has a replication id of its own."""
    key = state.keys[1] and not setup.empty and state.keys[1]._replace(current=False)
    owners = state.owners
    if setup.empty:
        owners = tuple(owner._replace(records=changed(owner.records, 1, 0)) for owner in owners)
    return state._replace(owners=owners, keys=changed(state.keys, 1, key or None), promoted=True)


def healed(setup: Setup, state: State) -> State:
    """The old primary becomes a replica of the new one, which is number 0 from now on."""
    for to in (0, *range(2, 1 + setup.replicas)):
        state = copied(state, 1, to)
    owners = (
        owner._replace(asked=owner.asked and (owner.asked._replace(server=0) if owner.asked.server else None))
        for owner in state.owners
    )
    return state._replace(owners=tuple(owners), since=None, promoted=False)


def forgotten(state: State) -> State:
    """Nobody hears from server 0 again, so what it knew does not matter."""
    owners = (owner._replace(records=changed(owner.records, 0, 0), asked=None) for owner in state.owners)
    return state._replace(owners=tuple(owners), keys=changed(state.keys, 0, None))
