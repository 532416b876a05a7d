"""What a lock promises, stated over what stands in its key before and after one request.

It knows nothing of how the scripts come to their answers. The numbers S1 to S10 are those of the invariants
over a whole history, of which this is one step.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from lock_interceptor.store import Claim, Granted, Waiting


class Held(NamedTuple):
    """A holder's record."""

    left: int
    """Ms of the lease."""
    token: int
    slot: int


class Seen(NamedTuple):
    """An attempt that stands in line."""

    number: int
    left: int
    """Ms of its presence."""


@dataclass(frozen=True)
class Records:
    """The content of a key at one time."""

    holders: dict[str, Held] = field(default_factory=dict)
    tickets: dict[str, int] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    attempts: dict[str, dict[str, Seen]] = field(default_factory=dict)
    """Of those that are present, by waiter and owner."""
    last_ticket: int = 0
    last_token: int = 0
    longest: int = 0
    grace: int = 0
    primary: str = ""
    """Empty for a lock that was never asked for."""

    @classmethod
    def read(cls, members: Mapping[str, int], clock_ms: int) -> "Records":
        """Take apart what is stored. What is over is left out, as if somebody had purged it."""
        book = {name[1:]: -4 * 10**15 - score for name, score in members.items() if name[0] == "#"}
        now = max(clock_ms, book.get("n", 0))  # the records stand still while the clock is behind

        def kind(letter: str) -> dict[str, int]:
            return {name[1:]: score for name, score in members.items() if name[0] == letter}

        tokens, slots, kept, presences = kind("t"), kind("s"), kind("k"), kind("p")
        tickets = {**kind("q"), **{name: score - 10**13 for name, score in kind("c").items()}}
        attempts: dict[str, dict[str, Seen]] = {}
        for record in kind("i"):
            waiter, *noted = record.partition("|")[0].split(":")
            for owner, number, early in (re.split("[,=]", each) for each in noted):
                left = -presences.get(waiter, 0) - int(early) - now
                if left > 0:
                    attempts.setdefault(waiter, {})[owner] = Seen(int(number), left)
        return cls(
            holders={
                owner: Held(ends - now, tokens[owner], slots[owner])
                for owner, ends in kind("h").items()
                if ends > now
            },
            tickets={name: ticket for name, ticket in tickets.items() if -kept[name] - 10**14 > now},
            present=frozenset(
                name for name, ends in presences.items() if -ends > now and -kept[name] - 10**14 > now
            ),
            attempts=attempts,
            last_ticket=book.get("q", 0),
            last_token=book.get("t", 0),
            longest=book.get("L", 0),
            grace=max(book.get("g", 0) - now, 0),
            primary=next((name[1:] for name in members if name[0] == "@"), ""),
        )


@dataclass(frozen=True)
class Request:
    """What was asked for, and the answer."""

    what: str
    """acquire, renew, release or park"""
    claim: Claim
    answer: object
    primary: str
    lease_ms: int = 0
    parks: bool = False
    """It stands in line parked, and wants no grant now."""


def broken(request: Request, before: Records, after: Records) -> list[str]:
    """The promises that this request broke; none if all is well."""
    answer, claim, owner = request.answer, request.claim, request.claim.owner
    found = [*_others(request, before, after), *_slots(after)]
    if request.what == "acquire" and isinstance(answer, Granted):
        if owner in before.holders:
            found += _again(request, before, after)
        else:
            found += _granted(request, before, after)
            found += ["S9: it was granted what it asked not to be granted now"] if request.parks else []
    elif request.what == "acquire":
        found += _refused(request, before)
        if request.parks and (claim.waiter not in after.tickets or claim.waiter in after.present):
            found.append(f"S9: it is to be parked, its place is {after.tickets.get(claim.waiter)}")
    elif request.what == "renew" and answer is not (owner in before.holders):
        found.append(f"S7: renewed {answer} for one of whom {before.holders.get(owner)} is known")
    elif request.what == "release" and answer is not (owner in before.holders):
        found.append(f"S6: released {answer} for one of whom {before.holders.get(owner)} is known")
    if request.what in {"release", "park"} and owner in after.holders:
        found.append("S6: it was given back, and is still held")
    return found


def _others(request: Request, before: Records, after: Records) -> Iterator[str]:
    """Nobody else's lease or place is touched, and only who asks for the lock becomes a holder."""
    claim = request.claim
    for owner, held in before.holders.items():
        if owner != claim.owner and after.holders.get(owner) != held:
            yield f"S6, S10: {owner} had {held}, and has {after.holders.get(owner)}"
    for owner in after.holders.keys() - before.holders.keys():
        if request.what != "acquire" or owner != claim.owner or not isinstance(request.answer, Granted):
            yield f"S7: {owner} became a holder by {request.what} of {claim.owner}"
    for waiter, ticket in before.tickets.items():
        if waiter != claim.waiter and after.tickets.get(waiter) != ticket:
            yield f"S9: the place of {waiter} was {ticket}, and is {after.tickets.get(waiter)}"
    own = after.tickets.get(claim.waiter)
    was = before.tickets.get(claim.waiter)
    if own is not None and was is not None and (own > was or (own < was and request.what != "park")):
        yield f"S9: its own place was {was}, and is {own}"
    if not before.present - {claim.waiter} <= after.present:
        yield f"S9: {before.present} were present, and {after.present} are"
    beside = later_beside(claim, before)
    if len(beside) < 3 and not beside.items() <= after.attempts.get(claim.waiter, {}).items():
        yield f"S9: {beside} stood in line beside it, and now {after.attempts.get(claim.waiter)} do"


def later_beside(claim: Claim, records: Records) -> dict[str, Seen]:
    """The other attempts of its waiter that are present, but for those that are over by this one."""
    attempts = records.attempts.get(claim.waiter, {}) if claim.waiter in records.present else {}
    return {
        owner: seen
        for owner, seen in attempts.items()
        if owner != claim.owner and seen.number >= claim.party.attempt
    }


def _slots(after: Records) -> Iterator[str]:
    slots = [held.slot for held in after.holders.values()]
    tokens = [held.token for held in after.holders.values()]
    if len(set(slots)) < len(slots) or len(set(tokens)) < len(tokens):
        yield f"S4, S12: slots {slots} and tokens {tokens} should be all different"


def _again(request: Request, before: Records, after: Records) -> Iterator[str]:
    """S5: the same claim gets the same, and takes nothing more."""
    owner, answer = request.claim.owner, request.answer
    was, now = before.holders[owner], after.holders.get(owner)
    if (answer.token, answer.slot) != (was.token, was.slot) or now is None or now[1:] != was[1:]:
        yield f"S5: {owner} had {was}, got {answer}, and has {now}"
    elif now.left != request.lease_ms:
        yield f"S5: asked again for {request.lease_ms} ms, and got {now.left}"


def _granted(request: Request, before: Records, after: Records) -> Iterator[str]:
    """A new grant has a free slot under the limit, its turn, a fresh token, and no forgotten one beside."""
    claim, answer = request.claim, request.answer
    if len(after.holders) > claim.limit:
        yield f"S1, S10: {len(after.holders)} hold, {claim.limit} may"
    if not 0 <= answer.slot < max(claim.limit, 1):
        yield f"S12: slot {answer.slot} of {claim.limit}"
    if answer.token <= before.last_token:
        yield f"S4: token {answer.token} after {before.last_token}"
    if after.holders.get(claim.owner) != Held(request.lease_ms, answer.token, answer.slot):
        yield f"S1: granted {answer}, and what is known is {after.holders.get(claim.owner)}"
    if _first(request, before) >= claim.limit - len(before.holders):
        yield f"S9: {_first(request, before)} were before it, {len(before.holders)} held"
    if before.grace or before.primary not in {"", request.primary}:
        yield f"S2: granted under {request.primary}, after {before.primary}, with {before.grace} ms of grace"
    if claim.waiter in after.tickets and not later_beside(claim, before):
        yield "S9: it was granted, and is still in line"


def _refused(request: Request, before: Records) -> Iterator[str]:
    """Nobody has to wait while there is a slot for him; and another primary waits for the longest lease."""
    assert isinstance(request.answer, Waiting)
    settling = request.answer.settling
    grace = before.grace
    if before.primary not in {"", request.primary}:
        usual_ms = request.claim.usual_lease // timedelta(milliseconds=1)
        grace = max(before.longest, request.lease_ms, usual_ms)
    if (settling or timedelta()) != timedelta(milliseconds=grace):
        yield f"S2: settling {settling} where {grace} ms of grace were due"
    if request.claim.owner in before.holders:
        yield "S5: it held the lock, and has to wait"
    if (
        not grace
        and not request.parks
        and _first(request, before) < request.claim.limit - len(before.holders)
    ):
        yield f"L2: {_first(request, before)} were before it, {len(before.holders)} held, and it has to wait"


def _first(request: Request, before: Records) -> int:
    """How many that are present come first."""
    claim = request.claim
    own = before.tickets.get(claim.waiter, claim.priority * 10**11 + before.last_ticket + 1)
    return sum(before.tickets[name] < own for name in before.present - {claim.waiter})
