"""A Hypothesis state machine: the scripts on both servers against the in-memory store, in virtual time."""

import asyncio
import collections
import dataclasses
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, ClassVar
from uuid import uuid4

import redis
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)
from lock_records import faults, is_exact
from store_cases import store_on
from virtual_time import Clock

from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.store import Claim, Granted, LockId, LockState, LockStore, Party, Queueing, Waiting
from lock_interceptor.testing import InMemoryLockStore

PRIORITIES = (3, 3, 3, 1, 9)
waiters = st.integers(0, len(PRIORITIES) - 1)
limits = st.sampled_from([1, 2, 2, 3])
hows = st.sampled_from(["this attempt"] * 4 + ["next attempt", "late", "once"])
whose = st.sampled_from(["a holder's", "a holder's", "a waiter's", "an earlier"])
leases = st.sampled_from([1.0, 5.0, 30.0])
presences = st.sampled_from([0.5, 4.0, 15.0])
keeps = st.sampled_from([2.0, 20.0, 600.0])


class World:
    """The stores, the servers behind them, and what has happened on them in the whole run."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], servers: list[RedisServer]) -> None:
        self.clock = Clock()
        self.memory = InMemoryLockStore(self.clock)
        self.stores: list[LockStore] = [self.memory, *(store_on(server, self.clock) for server in servers)]
        self.servers = [redis.Redis(port=server.port, decode_responses=True) for server in servers]
        self.run = run
        self.seen: collections.Counter[str] = collections.Counter()

    def close(self) -> None:
        """Close all connections."""
        for store in self.stores:
            self.run(store.close())
        for server in self.servers:
            server.close()


async def _answers(
    stores: list[LockStore], operation: Callable[[LockStore], Coroutine[Any, Any, Any]]
) -> list[Any]:
    return await asyncio.gather(*map(operation, stores))


class Machine(RuleBasedStateMachine):
    """One lock: every operation goes to all stores, which have to answer alike."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        self.lock = LockId("model", f"lock-{uuid4()}")
        self.attempts = [0] * len(PRIORITIES)
        self.tickets = [0] * len(PRIORITIES)
        self.last_token = 0
        self.state = LockState()
        self.members: dict[str, int] = {}
        self.stepped_back = False

    # -- what can happen

    @rule(who=waiters, how=hows, limit=limits, lease=leases, presence=presences, keep=keeps)
    def ask(self, *, who: int, how: str, limit: int, lease: float, presence: float, keep: float) -> None:
        """Acquire or queue: this attempt, the next one, or an earlier one that comes late."""
        self.attempts[who] += how == "next attempt"
        queueing = Queueing(presence=timedelta(seconds=presence), keep=timedelta(seconds=keep))
        claim = self._claim(who, limit, max(self.attempts[who] - (how == "late"), 0))
        self._ask(claim, lease, None if how == "once" else queueing, who)

    @rule(order=st.permutations(range(len(PRIORITIES))), limit=limits)
    def crowd(self, order: list[int], limit: int) -> None:
        """Three ask, one after the other."""
        for who in order[:3]:
            self.nobody_overtakes()
            self.ask(who=who, how="this attempt", limit=limit, lease=30.0, presence=4.0, keep=20.0)

    @precondition(lambda self: self.last_token)
    @rule(who=waiters, whose=whose, lease=leases)
    def renew(self, who: int, whose: str, lease: float) -> None:
        """Renew."""
        claim = self._pick(who, whose, 1)
        renewed = self._all(lambda store: store.renew(claim, lease=timedelta(seconds=lease)))
        self._count(f"renewed {renewed}")

    @precondition(lambda self: self.last_token)
    @rule(how=st.sampled_from(["released", "parked", "parked with ticket"]), who=waiters, whose=whose)
    def give_back(self, how: str, who: int, whose: str) -> None:
        """Give back, leave, or step aside."""
        claim = self._pick(who, whose, 2)
        if how == "released":
            held = self._all(lambda store: store.release(claim))
            self._count(f"released {held}")
        else:
            ticket = self.tickets[int(claim.waiter[1:])] if how == "parked with ticket" else 0
            self._all(lambda store: store.park(claim, ticket=ticket, keep=timedelta(seconds=20)))
            self._count(how)
        self._look()

    @rule(seconds=st.sampled_from([0.001, 0.25, 1.0, 4.0, -0.001, -0.7, -1.0, -1.001, -3600.0]))
    def step_clock(self, seconds: float) -> None:
        """Some time goes by, or the server's clock is set back."""
        self.world.clock.step(seconds)
        self.stepped_back |= seconds < 0
        self._count("back" if seconds < 0 else "time")
        self._look()

    @precondition(lambda self: self._edges())
    @rule(data=st.data(), off_ms=st.sampled_from([-1, 0, 0, 1]))
    def go_to_an_edge(self, data: st.DataObject, off_ms: int) -> None:
        """Time goes on exactly to where something ends, or to a millisecond beside it."""
        edge = data.draw(st.sampled_from(self._edges()))
        self.world.clock.us += max(edge + off_ms, 0) * 1000
        self._count("edge")
        self._look()

    # -- what always has to hold

    @invariant()
    def nobody_overtakes(self) -> None:
        """Slots are unique, and the order of those in line does not change."""
        state: LockState = self.world.run(self.world.memory.inspect(self.lock))
        slots = [holder.slot for holder in state.holders]
        assert slots == sorted(set(slots))
        was, now = ([waiter.waiter for waiter in each.waiters] for each in (self.state, state))
        assert [name for name in was if name in now] == [name for name in now if name in was]
        self.state = state

    @invariant()
    def the_keys_are_in_order(self) -> None:
        """Every record is in its band and has what belongs to it, and the key has an end."""
        for members, ttl in self._stored():
            assert faults(members) == []
            assert ttl > 0 or not members
            self.members = members

    def teardown(self) -> None:
        """When the time of all is over and somebody looks in, nothing but bookkeeping is left."""
        self.world.clock.step(4 * 3600)
        self._all(lambda store: store.release(self._claim(0, 1)))
        for members, ttl in self._stored():
            assert {member[0] for member in members} <= {"#", "@"}
            assert ttl <= 60_000
        for server in self.world.servers:
            server.delete(self._key)

    # -- how

    def _claim(self, who: int, limit: int, attempt: int | None = None) -> Claim:
        attempt = self.attempts[who] if attempt is None else attempt
        party = Party(workflow=f"workflow{who}", attempt=attempt)
        owner, priority = f"owner{who}.{attempt}", PRIORITIES[who]
        return Claim(
            lock=self.lock, owner=owner, waiter=f"w{who}", limit=limit, priority=priority, party=party
        )

    def _pick(self, who: int, whose: str, limit: int) -> Claim:
        """The claim of one that holds, of any attempt of now, or of an attempt that is over."""
        owners = [holder.owner.removeprefix("owner") for holder in self.state.holders]
        if whose == "a holder's" and owners:
            number, attempt = map(int, owners[who % len(owners)].split("."))
            return self._claim(number, limit, attempt)
        return self._claim(who, limit, max(self.attempts[who] - (whose == "an earlier"), 0))

    def _ask(self, claim: Claim, lease: float, queueing: Queueing | None, who: int) -> None:
        before = self.state
        answer = self._all(
            lambda store: store.acquire(claim, lease=timedelta(seconds=lease), queueing=queueing)
        )
        held = {holder.owner: holder.token for holder in before.holders}
        if isinstance(answer, Waiting):
            assert claim.owner not in held
            assert answer.held == len(held)
            self._count("waiting")
        elif claim.owner in held:
            assert answer.token == held[claim.owner]
            self._count("again")
        else:
            self._check_grant(claim, answer, before)
            self._count("granted")
            self.last_token, self.tickets[who] = answer.token, answer.ticket

    def _check_grant(self, claim: Claim, granted: Granted, before: LockState) -> None:
        """A grant has a place under the limit, a fresh token, and nobody present before it went short."""
        assert granted.token > self.last_token
        assert granted.slot not in {holder.slot for holder in before.holders}
        free = claim.limit - len(before.holders)
        assert 0 <= granted.slot < claim.limit
        names = [waiter.waiter for waiter in before.waiters]
        if claim.waiter in names:
            first = before.waiters[: names.index(claim.waiter)]
        else:
            first = tuple(
                waiter for waiter in before.waiters if PRIORITIES[int(waiter.waiter[1:])] <= claim.priority
            )
        assert sum(waiter.present for waiter in first) < free

    def _edges(self) -> list[int]:
        """Milliseconds until the leases, presences and places of now end, as the records tell."""
        now = max(self.world.clock.us // 1000, -self.members.get("#n", 0) - 4 * 10**15)
        ends = {"h": lambda s: s, "p": lambda s: -s, "k": lambda s: -s - 10**14}
        return sorted(ends[m[0]](score) - now for m, score in self.members.items() if m[0] in ends)

    def _all(self, operation: Callable[[LockStore], Coroutine[Any, Any, Any]]) -> Any:
        """What all stores answer."""
        first, *others = map(self._comparable, self.world.run(_answers(self.world.stores, operation)))
        for other in others:
            assert other == first
        return first

    def _look(self) -> None:
        """Holders and waiters are the same everywhere."""
        self._all(lambda store: store.inspect(self.lock))

    def _comparable(self, answer: Any) -> Any:
        """Redis takes the time of a grant from its token, so a step back makes holding seem shorter."""
        if self.stepped_back and isinstance(answer, Waiting):
            return dataclasses.replace(answer, mean_hold=None)
        if self.stepped_back and isinstance(answer, LockState):
            holders = (dataclasses.replace(holder, held_for=timedelta()) for holder in answer.holders)
            return dataclasses.replace(answer, holders=tuple(holders))
        return answer

    @property
    def _key(self) -> str:
        return lock_key("lock", self.lock)

    def _stored(self) -> list[tuple[dict[str, int], int]]:
        """The records and the time to live of the key, on each server."""
        found = []
        for server in self.world.servers:
            pipeline = server.pipeline(transaction=False)
            members, ttl = pipeline.zrange(self._key, 0, -1, withscores=True).pttl(self._key).execute()
            assert all(is_exact(score) for _, score in members)
            found.append(({member: int(score) for member, score in members}, ttl))
        return found

    def _count(self, what: str) -> None:
        self.world.seen[what] += 1
