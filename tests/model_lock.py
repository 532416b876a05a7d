"""One lock under test: what is sent to it and happens to it, on the model and the servers alike."""

import dataclasses
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, ClassVar
from uuid import uuid4

from lock_promises import Records, Request, broken, later_beside
from lock_records import faults
from model_world import Beliefs, Call, Stored, World

from lock_interceptor.store import Granted, LockId, LockState, LockStore, Waiting

SLACK_MS = 5000
"""Keys live by the servers' own time, of which some passes here too."""


class ModelledLock:
    """Every request goes to all stores; they have to answer alike and keep their promises."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        self.lock = LockId("model", f"lock-{uuid4()}")
        self.tickets: dict[str, int] = {}
        """By waiter: the place that its last grant used up."""
        self.last_token = 0
        self.stored: Stored = [({}, -2)] * len(self.world.servers)
        self.beliefs = Beliefs()
        self.stepped_back = False
        self.sent: list[Call] = []
        self.world.clock.primary = uuid4().hex
        self.copy()

    def send(self, call: Call) -> None:
        """Send a request to all, and see that what they did was right."""
        answer, befores = self.all_answer(call.on), [self.records(at) for at in range(len(self.stored))]
        self.stored = self.world.read(self.lock)
        parks = call.queueing is not None and call.queueing.presence is None
        request = Request(call.what, call.claim, answer, self.world.clock.primary, call.lease_ms, parks)
        for at, (members, ttl) in enumerate(self.stored):
            found = [*faults(members), *broken(request, befores[at], self.records(at))]
            assert not found, found
            # the key lives as long as anything in it, and its last token for a minute after its release
            idle = call.what == "release" and answer and not self.records(at).tickets
            assert not members or ttl + SLACK_MS >= max([60_000 if idle else 0, *self.edges(at)])
        self.count(_summary(call, answer, befores[0]))
        if later_beside(call.claim, befores[0]):
            self.count(f"{call.what} beside another attempt")
        self._believe(call, answer, befores[0])
        self.sent.append(call)

    def _believe(self, call: Call, answer: Any, before: Records) -> None:
        """S2 and S4, over all that has happened, also on primaries that are gone."""
        claim = call.claim
        if isinstance(answer, Granted):
            self.beliefs.begin(claim.owner, call.lease_ms)
            if claim.owner in before.holders:
                return
            if self.beliefs.sure:
                assert len(self.beliefs.live()) <= claim.limit
                self.count("S2 checked")
            # a key that is gone protects tokens by the time alone
            if max(before.last_token, self.world.clock.us - 1) >= self.last_token:
                assert answer.token > self.last_token
                self.count("S4 checked")
            self.last_token, self.tickets[claim.waiter] = answer.token, answer.ticket
        elif answer is True and call.what == "renew":
            self.beliefs.begin(claim.owner, call.lease_ms)
        elif call.what != "acquire":
            self.beliefs.end(claim.owner)

    def edges(self, at: int = 0) -> list[int]:
        """Milliseconds until the leases, presences, places and the grace of now end, as the records tell."""
        members = self.stored[at][0]
        now = max(self.world.clock.us // 1000, -members.get("#n", 0) - 4 * 10**15)
        ends = {"h": lambda s: s, "p": lambda s: -s, "k": lambda s: -s - 10**14}
        found = [ends[m[0]](score) - now for m, score in members.items() if m[0] in ends]
        return sorted([*found, self.records(at).grace] if self.records(at).grace else found)

    def pass_ms(self, ms: int) -> None:
        """Time goes by for owners and servers alike."""
        self.beliefs.now_ms += ms
        self.set_clock(ms)

    def set_clock(self, ms: int) -> None:
        """The servers' clock moves, and the time that keys have to live with it."""
        self.world.clock.us += ms * 1000
        stored = [(members, ttl - ms) for members, ttl in self.stored]
        if not stored[0][0]:
            return
        if min(ttl for _, ttl in stored) > 0:
            self.stored = self.world.outlive(self.lock, stored)
            return
        for members, _ in stored:
            left = Records.read(members, self.world.clock.us // 1000 + SLACK_MS)
            assert not left.holders
            assert not left.tickets
        self.forget("expired")

    def forget(self, why: str) -> None:
        """The key is gone, and with it all that was known."""
        self.count(why)
        self.stored = [({}, -2)] * len(self.stored)
        self.world.write(self.lock, self.stored)
        self.world.memory.forget(self.lock)
        self.beliefs.forgotten(self.beliefs.live())

    def copy(self) -> None:
        """A replica gets all that there is."""
        self.copied = (self.stored, self.world.memory.save(self.lock), self.world.clock.us)

    def promote(self, *, lost: bool) -> None:
        """The replica takes over with what it has, under an id of its own."""
        saved, model, at_us = self.copied
        lived = (self.world.clock.us - at_us) // 1000
        stored = [(members, ttl - lived) for members, ttl in saved]
        if any(not members or ttl <= 0 for members, ttl in stored):
            return self.forget("failed over to nothing")
        self.world.write(self.lock, stored)
        self.world.memory.restore(self.lock, model)
        self.world.clock.primary = uuid4().hex
        self.stored = stored
        self.count("failed over, lost" if lost else "failed over")
        return None

    def records(self, at: int) -> Records:
        """What this server has of the lock."""
        return Records.read(self.stored[at][0], self.world.clock.us // 1000)

    def all_answer(self, operation: Callable[[LockStore], Coroutine[Any, Any, Any]]) -> Any:
        """What all stores answer."""
        first, *others = map(self._comparable, self.world.ask(operation))
        for other in others:
            assert other == first, f"{other} is not {first}"
        return first

    def look(self) -> None:
        """Holders and waiters are the same everywhere."""
        self.all_answer(lambda store: store.inspect(self.lock))

    def _comparable(self, answer: Any) -> Any:
        """Redis takes the time of a grant from its token, so a step back makes holding seem shorter."""
        if isinstance(answer, Waiting):
            answer = dataclasses.replace(answer, mean_hold=None)
        if self.stepped_back and isinstance(answer, Waiting | LockState):
            holders = (dataclasses.replace(holder, held_for=timedelta()) for holder in answer.holders)
            return dataclasses.replace(answer, holders=tuple(holders))
        return answer

    def count(self, what: str) -> None:
        """Take note of what the run has seen."""
        self.world.seen[what] += 1


def _summary(call: Call, answer: Any, before: Records) -> str:
    """What is counted of a request."""
    if call.queueing is not None and call.queueing.presence is None:
        held = call.claim.owner in before.holders
        return "asked parked, held" if held else "asked parked"
    if isinstance(answer, Waiting):
        return "settling" if answer.settling else "waiting"
    if isinstance(answer, Granted):
        return "again" if call.claim.owner in before.holders else "granted"
    if call.what == "park":
        held = "holding" if call.claim.owner in before.holders else "the line"
        return f"parked from {held}" + (" with ticket" if call.ticket else "")
    return f"{call.what} {answer}"
