"""How many believed and worked at once: S2 and S3."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from .beliefs import Belief, Owner
from .expectations import BETWEEN, Expectations, Fault
from .findings import Findings
from .served import Lock


def check_beliefs(
    owners: Mapping[str, Owner], locks: Mapping[str, Lock], expectations: Expectations, findings: Findings
) -> None:
    """S2: never more than the limit believe at one moment."""
    changes: dict[str, list[tuple[float, int, Owner]]] = defaultdict(list)
    for owner, belief in _beliefs(owners):
        if belief.end > belief.start:
            changes[owner.lock] += [(belief.start, 1, owner), (belief.end, -1, owner)]
    for lock, all_changes in changes.items():
        active: dict[str, Owner] = {}
        for at, change, owner in sorted(all_changes, key=lambda change: change[:2]):
            if change < 0:
                active.pop(owner.name, None)
                continue
            active[owner.name] = owner
            findings.most("most believers at once", len(active))
            limit = max(
                each.limit for each in active.values()
            )  # answers may come in another order than grants
            if len(active) <= limit:
                continue
            histories = {_history(each, locks.get(lock)) for each in active.values()}
            findings.counts[BETWEEN] += len(histories) > 1
            if len(histories) == 1 or not expectations.overlaps_are_no_surprise:
                text = f"{len(active)} of {limit} believe, by {len(histories)} histories: {sorted(active)}"
                findings.violate("S2", text, lock, at)


def check_bodies(  # noqa: PLR0917 - all of a history
    owners: Mapping[str, Owner],
    locks: Mapping[str, Lock],
    faults: Sequence[Fault],
    expectations: Expectations,
    findings: Findings,
    ends: Mapping[int, float],
) -> None:
    """S3: more than the limit work at once only for a moment, and because a lease was lost."""
    changes: dict[str, list[tuple[float, int, int, Owner]]] = defaultdict(list)
    stopped: dict[int, list[Fault]] = defaultdict(list)
    for fault in faults:
        stopped[fault.process].append(fault)
    for owner in owners.values():
        for number, (start, stop) in enumerate(owner.bodies):
            findings.counts["bodies"] += 1
            last = ends[owner.process]
            changes[owner.lock] += [(start, 1, number, owner), (min(stop, last), -1, number, owner)]
            if owner.belief is None or not owner.belief.start <= start:
                findings.violate("S3", f"{owner.name} works without a lease", owner.lock, start)
            elif start > owner.belief.end:
                findings.violate("S3", f"{owner.name} began after its lease had ended", owner.lock, start)
    for lock, all_changes in changes.items():
        _sweep_bodies(lock, locks.get(lock), all_changes, stopped, expectations, findings)


def _sweep_bodies(  # noqa: PLR0917 - all of a history
    lock: str,
    served: Lock | None,
    changes: list[tuple[float, int, int, Owner]],
    stopped: Mapping[int, Sequence[Fault]],
    expectations: Expectations,
    findings: Findings,
) -> None:
    active: dict[tuple[str, int], Owner] = {}
    crowded: dict[tuple[str, int], float] = {}
    for at, change, number, owner in sorted(changes, key=lambda change: change[:3]):
        this = owner.name, number
        if change > 0:
            active[this] = owner
            findings.most("most bodies at once", len(active))
            limit = max(each.limit for each in active.values())
            if len(active) > limit:
                late = {name: each for name, each in active.items() if each.belief and each.belief.end <= at}
                histories = {_history(each, served) for name, each in active.items() if name not in late}
                expected = len(histories) > 1 and expectations.overlaps_are_no_surprise
                if len(active) - len(late) > limit and not expected:
                    text = f"{len(active)} of {limit} work, {len(late)} of them with a lost lease"
                    findings.violate("S3", text, lock, at)
                for name in late:
                    crowded.setdefault(name, at)
            continue
        active.pop(this, None)
        since = crowded.pop(this, None)
        if since is not None:
            over = at - since - _stopped(stopped.get(owner.process, ()), since, at)
            findings.counts["bodies after their lease"] += 1
            findings.most("longest overrun", round(over, 3))
            if over > expectations.stop_margin:
                findings.violate("S3", f"{owner.name} worked on for {over:.1f} s", lock, at)


def _stopped(faults: Sequence[Fault], since: float, until: float) -> float:
    return sum(max(min(fault.end, until) - max(fault.start, since), 0) for fault in faults)


def _beliefs(owners: Mapping[str, Owner]) -> Iterator[tuple[Owner, Belief]]:
    for owner in owners.values():
        if owner.belief is not None:
            yield owner, owner.belief


def _history(owner: Owner, lock: Lock | None) -> object:
    """By which history of grants an owner holds."""
    grants = lock.by_owner.get(owner.name, ()) if lock else ()
    token = owner.belief.token if owner.belief else math.nan
    return next((grant.history for grant in grants if grant.token == token), None)
