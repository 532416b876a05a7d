"""A Hypothesis state machine: the scripts on both servers against the model, in virtual time."""

import dataclasses
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from model_lock import ModelledLock
from model_world import Call

from lock_interceptor.store import Claim, Party, Queueing

PRIORITIES = (3, 3, 3, 1, 9)
waiters = st.integers(0, len(PRIORITIES) - 1)
limits = st.sampled_from([1, 2, 2, 3])
hows = st.sampled_from(["this attempt"] * 4 + ["next attempt", "late", "once", "more urgent", "parked"])
whose = st.sampled_from(["a holder's", "a holder's", "a waiter's", "an earlier"])
leases = st.sampled_from([1.0, 5.0, 30.0])
LONGEST = timedelta(seconds=30)
presences = st.sampled_from([0.5, 4.0, 15.0])
keeps = st.sampled_from([2.0, 20.0, 600.0])
forward = st.sampled_from([0.001, 0.25, 1.0, 4.0, 4.0, 15.0, 70.0, 700.0])
back = st.sampled_from([-0.001, -0.7, -1.0, -1.001, -30.0, -3600.0, -86400.0])


class Machine(ModelledLock, RuleBasedStateMachine):
    """All that can happen to a lock, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts = [0] * len(PRIORITIES)

    # -- requests

    @rule(who=waiters, how=hows, limit=limits, lease=leases, presence=presences, keep=keeps)
    def ask(self, *, who: int, how: str, limit: int, lease: float, presence: float, keep: float) -> None:
        """Acquire or queue: this attempt, the next one, or an earlier one that comes late."""
        self.attempts[who] += how == "next attempt"
        claim = self._claim(who, limit, self.attempts[who] - (how == "late"))
        if how == "more urgent":
            claim = dataclasses.replace(claim, priority=2)
        present = None if how == "parked" else timedelta(seconds=presence)
        queueing = Queueing(presence=present, keep=timedelta(seconds=keep))
        self.send(Call("acquire", claim, round(lease * 1000), None if how == "once" else queueing))

    @rule(order=st.permutations(range(len(PRIORITIES))), limit=limits)
    def crowd(self, order: list[int], limit: int) -> None:
        """Three ask, one after the other."""
        for who in order[:3]:
            self.ask(who=who, how="this attempt", limit=limit, lease=30.0, presence=4.0, keep=20.0)

    @precondition(lambda self: self.records(0).holders)
    @rule(who=waiters, limit=limits, what=st.sampled_from(["release", "park"]), later=st.booleans())
    def two_at_once(self, *, who: int, limit: int, what: str, later: bool) -> None:
        """The next attempt asks, the one before it does not know that it is over, and one of them goes."""
        for how in ("this attempt", "next attempt", "late"):
            self.ask(who=who, how=how, limit=limit, lease=5.0, presence=4.0, keep=20.0)
        self.send(Call(what, self._claim(who, limit, self.attempts[who] - (not later))))
        self.look()

    @precondition(lambda self: self.last_token)
    @rule(who=waiters, whose=whose, lease=leases)
    def renew(self, who: int, whose: str, lease: float) -> None:
        """Renew."""
        self.send(Call("renew", self._pick(who, whose, 1), round(lease * 1000)))

    @precondition(lambda self: self.last_token)
    @rule(what=st.sampled_from(["release", "park"]), who=waiters, whose=whose, limit=limits)
    def give_back(self, what: str, who: int, whose: str, limit: int) -> None:
        """Give back, leave, or step aside."""
        self.send(Call(what, self._pick(who, whose, limit)))
        self.look()

    @precondition(lambda self: self.records(0).holders and self.records(0).present)
    @rule(who=waiters, limit=limits)
    def hand_over(self, who: int, limit: int) -> None:
        """A holder gives back, and who is next asks."""
        self.send(Call("release", self._pick(who, "a holder's", limit)))
        records = self.records(0)
        following = min(records.present, key=lambda name: records.tickets[name], default=f"w{who}")
        self.ask(who=int(following[1:]), how="this attempt", limit=limit, lease=5.0, presence=4.0, keep=20.0)

    @precondition(lambda self: any(self.tickets.values()))
    @rule(data=st.data(), limit=limits, late=st.sampled_from([False, False, True]))
    def step_back(self, data: st.DataObject, limit: int, *, late: bool) -> None:
        """One that was granted out of the line goes back to its place, perhaps when its lease is over."""
        name = data.draw(st.sampled_from(sorted(name for name, ticket in self.tickets.items() if ticket)))
        who = int(name[1:])
        if late:
            self.pass_ms(30_000)
        self.send(Call("park", self._claim(who, limit, self.attempts[who]), ticket=self.tickets[name]))
        self.look()

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A request that was sent before arrives again, however long ago that was."""
        self.send(data.draw(st.sampled_from(self.sent[-20:])))
        self.count("repeated")

    # -- what happens to servers

    @precondition(lambda self: self.stored[0][0])
    @rule(seconds=forward)
    def pass_time(self, seconds: float) -> None:
        """Time goes by."""
        self.pass_ms(round(seconds * 1000))
        self.count("time")
        self.look()

    @precondition(lambda self: self.edges())
    @rule(data=st.data(), off_ms=st.sampled_from([-1, 0, 0, 1]))
    def go_to_an_edge(self, data: st.DataObject, off_ms: int) -> None:
        """Time goes on exactly to where something ends, or to a millisecond beside it."""
        self.pass_ms(max(data.draw(st.sampled_from(self.edges())) + off_ms, 0))
        self.count("edge")
        self.look()

    @precondition(lambda self: self.stored[0][0])
    @rule(seconds=back)
    def set_back(self, seconds: float) -> None:
        """The server's clock is set back, and no time goes by."""
        self.set_clock(round(seconds * 1000))
        self.stepped_back = True
        self.count("back")
        self.look()

    @precondition(lambda self: self.stored[0][0])
    @rule()
    def replicate(self) -> None:
        """A replica gets all that there is."""
        self.copy()

    @precondition(lambda self: self.stored[0][0] and len(self.sent) % 3 == 0)  # not too often
    @rule(lost=st.booleans())
    def fail_over(self, *, lost: bool) -> None:
        """The replica is promoted, with all that there is or without what it did not get in time."""
        if not lost:
            self.copy()
        self.promote(lost=lost)

    @precondition(lambda self: self.stored[0][0] and len(self.sent) % 8 == 0)  # not too often
    @rule()
    def delete(self) -> None:
        """Somebody deletes the key, or flushes everything."""
        self.forget("deleted")

    def teardown(self) -> None:
        """When the time of all is over and somebody looks in, nothing but bookkeeping is left."""
        for seconds in (0, 4 * 3600):  # only a clock that has been read can be seen to go on
            self.world.clock.step(seconds)
            self.all_answer(lambda store: store.release(self._claim(0, 1, 0)))
        for members, ttl in self.world.read(self.lock):
            assert {member[0] for member in members} <= {"#", "@"}
            assert ttl <= 60_000
        self.world.write(self.lock, [({}, 0)] * len(self.stored))

    # -- who

    def _claim(self, who: int, limit: int, attempt: int) -> Claim:
        attempt = max(attempt, 0)
        # two of them in turn have the same number, as if nobody knew which one is the later
        party = Party(workflow=f"workflow{who}", attempt=attempt // 2)
        owner, priority = f"owner{who}.{attempt}", PRIORITIES[who]
        return Claim(
            lock=self.lock,
            owner=owner,
            waiter=f"w{who}",
            limit=limit,
            priority=priority,
            usual_lease=LONGEST,
            party=party,
        )

    def _pick(self, who: int, whose: str, limit: int) -> Claim:
        """The claim of one that holds, of any attempt of now, or of an attempt that is over."""
        owners = sorted(self.records(0).holders)
        if whose == "a holder's" and owners:
            number, attempt = map(int, owners[who % len(owners)].removeprefix("owner").split("."))
            return self._claim(number, limit, attempt)
        return self._claim(who, limit, self.attempts[who] - (whose == "an earlier"))
