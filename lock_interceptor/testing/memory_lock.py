"""One lock in memory: its holders and its line."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

from lock_interceptor.store import Claim, HolderState, Party, Waiting


@dataclass(slots=True)
class Holder:
    """One that holds the lock."""

    token: int
    slot: int
    since: int
    ends: int
    ticket: int
    party: Party

    def state(self, owner: str, now: int) -> HolderState:
        """As the store's users see it."""
        return HolderState(
            owner=owner,
            token=self.token,
            slot=self.slot,
            lease_left=timedelta(milliseconds=self.ends - now),
            held_for=timedelta(milliseconds=now - self.since),
            party=self.party,
        )


@dataclass(slots=True)
class Place:
    """One that stands in line."""

    ticket: int
    kept_until: int
    attempts: dict[str, tuple[int, int]]
    """By owner: which attempt it is, and until when it is present. Empty for one that is parked."""
    party: Party

    def present(self, now: int) -> bool:
        """Whether it asked recently enough to be granted the lock."""
        return any(until > now for _, until in self.attempts.values())

    def others(self, claim: Claim, now: int) -> dict[str, tuple[int, int]]:
        """The other attempts that are present, without those that this one takes over from."""
        return {
            owner: (attempt, until)
            for owner, (attempt, until) in self.attempts.items()
            if owner != claim.owner and attempt >= claim.party.attempt and until > now
        }


@dataclass(slots=True)
class Lock:
    """All about one lock. Its times are milliseconds that never step back."""

    now: int = -(2**62)
    behind: int = 0
    """How far the clock is behind these times, since it stepped back."""
    last_token: int = 0
    last_ticket: int = 0
    mean_hold: int | None = None
    holders: dict[str, Holder] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)

    def present(self) -> list[tuple[int, str]]:
        """Tickets and names of the waiters that may be granted the lock, in order."""
        places = self.places.items()
        return sorted((place.ticket, name) for name, place in places if place.attempts)

    def step_out(self, claim: Claim, ticket: int = 0) -> bool:
        """This attempt stands in line no more; whether others of its waiter do, perhaps further ahead now."""
        place = self.places.get(claim.waiter)
        if place is not None:
            place.attempts = place.others(claim, self.now)
            if place.attempts:
                place.ticket = ticket or place.ticket
                return True
            del self.places[claim.waiter]
        return False

    def remembered(self, ticket: int, place: Place | None) -> int:
        """A ticket that only its owner remembers; the next one if others have got it meanwhile."""
        if place is not None and place.ticket == ticket:
            return ticket
        priority, arrival = divmod(ticket, 10**11)
        if any(other.ticket == ticket for other in self.places.values()):
            if place is not None:
                return place.ticket
            arrival = self.last_ticket + 1
        self.last_ticket = max(self.last_ticket, arrival)
        return priority * 10**11 + arrival

    def waiting(self, ticket: int, rank: int, *, stands: bool) -> Waiting:
        """What a claim with this ticket is told."""
        parked = sum(not place.attempts and place.ticket < ticket for place in self.places.values())
        ends = min((holder.ends for holder in self.holders.values()), default=None)
        by_age = sorted(self.holders.items(), key=lambda item: item[1].token)
        return Waiting(
            place=rank + 1,
            ahead=rank + parked,
            held=len(self.holders),
            mean_hold=None if self.mean_hold is None else timedelta(milliseconds=self.mean_hold),
            next_expiry=None if ends is None else timedelta(milliseconds=ends - self.now),
            holders=tuple(holder.state(owner, self.now) for owner, holder in by_age[:3]),
            ticket=ticket if stands else 0,
        )

    def refusal(self, claim: Claim, ticket: int, rank: int) -> Waiting:
        """The same for one that does not queue: it is also told of its own attempts."""
        ends = [holder.ends for owner, holder in self.holders.items() if owner[:16] == claim.waiter[:16]]
        left = timedelta(milliseconds=min(ends) - self.now) if ends else None
        return replace(self.waiting(ticket, rank, stands=False), own=len(ends), own_expiry=left)
