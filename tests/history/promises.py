"""What each client was promised: S4 to S7 as clients see them, S11, S12, and L6 to L9."""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .beliefs import MARGIN, Belief, Call, Owner
from .client_log import Note
from .expectations import Expectations, Fault
from .findings import Findings
from .served import Grant, Lock, Step


@dataclass(slots=True)
class Outcome:
    """What the server did for one call."""

    held: bool
    """The owner was a holder before."""
    token: float | None
    slot: float | None
    """What it holds after, if it does."""
    times: int = 1


def outcome(step: Step, before: Outcome | None) -> Outcome:
    """What a step did for its call, which it should have done once."""
    live, records = step.owner in step.state.live, step.state.records
    token, slot = (records.get(kind + step.owner) if live else None for kind in "ts")
    return Outcome(step.held, token, slot, before.times + 1 if before else 1)


def check_answers(owners: Mapping[str, Owner], outcomes: Mapping[str, Outcome], findings: Findings) -> None:
    """S5 to S7: a client is told what happened, and no request is executed twice."""
    for owner in owners.values():
        for call in owner.calls:
            done = outcomes.get(call.name)
            if done is None:
                findings.counts["requests lost"] += call.unclear
                if outcomes and not call.unclear:
                    findings.violate(
                        "audit", f"no row for {call.name}, {call.op} of {owner.name}", owner.lock, call.sent
                    )
                continue
            findings.counts["answers lost"] += call.unclear
            if done.times > 1:
                text = f"{call.op} of {owner.name} was executed {done.times} times"
                findings.violate("S5", text, owner.lock, call.sent)
            _check_answer(owner, call, done, findings)


def _check_answer(owner: Owner, call: Call, done: Outcome, findings: Findings) -> None:
    answer = call.answer
    if answer is None or call.unclear:
        return
    if call.op == "acquire":
        told = answer.get("token"), answer.get("slot")
        if told != (done.token, done.slot):
            text = f"{owner.name} was told {told}, the server gave {(done.token, done.slot)}"
            findings.violate("S5", text, owner.lock, call.answered)
    elif call.op in ("renew", "release") and answer["yes"] != done.held:
        rule = "S7" if call.op == "renew" else "S6"
        text = f"{call.op} of {owner.name} said {answer['yes']}, it {'held' if done.held else 'did not hold'}"
        findings.violate(rule, text, owner.lock, call.answered)


def check_tokens(owners: Mapping[str, Owner], findings: Findings) -> None:
    """S4: who asked after somebody had been granted gets a higher token."""
    grants: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for owner in owners.values():
        asked: float | None = None
        for call in owner.calls:
            if call.op != "acquire":
                continue
            asked = call.sent if asked is None else asked
            if call.answer and "place" in call.answer:
                asked = None  # it had not been granted by then
            elif call.answer and "token" in call.answer:
                grants[owner.lock].append((asked, call.answered, call.answer["token"]))
                break
    for lock, all_grants in grants.items():
        told: list[tuple[float, float]] = []
        highest = 0.0
        for sent, answered, token in sorted(all_grants):
            while told and told[0][0] <= sent:
                highest = max(highest, heapq.heappop(told)[1])
            if token <= highest:
                findings.violate("S4", f"token {token} after {highest} was known", lock, sent)
            heapq.heappush(told, (answered, token))


def check_regrants(owners: Mapping[str, Owner], locks: Mapping[str, Lock], findings: Findings) -> None:
    """S5, S7: an owner is granted again only if it never knew of the first time."""
    for name, lock in locks.items():
        for grant in lock.regrants:
            owner = owners.get(grant.owner)
            first = lock.by_owner[grant.owner][0]
            knew = owner is None or (owner.belief is not None and owner.belief.token != grant.token)
            knew = knew or not any(_unheard(call) for call in owner.calls if call.op == "acquire")
            findings.counts["granted again unheard"] += not knew
            if knew:
                text = f"{grant.owner} got {grant.token:.0f} after {first.token:.0f} was {first.ended}"
                findings.violate("S7" if first.ended else "S5", text, name, grant.at)


def _unheard(call: Call) -> bool:
    """Whether nobody can have believed in what the request brought: an answer after the lease is none."""
    return call.unclear or call.answered >= call.sent + call.asked["lease"] / 1000 * (1 - MARGIN)


def check_losses(  # noqa: PLR0917 - all of a history
    owners: Mapping[str, Owner],
    locks: Mapping[str, Lock],
    faults: Sequence[Fault],
    expectations: Expectations,
    end: float,
    findings: Findings,
) -> None:
    """L6, and S2 between server and client: leases are lost for a reason, and end here first."""
    # a request that nobody answered may be executed long after: by a server that hung
    answered = {
        call.name: call.answered for owner in owners.values() for call in owner.calls if not call.unclear
    }
    for owner in owners.values():
        belief = owner.belief
        if belief is None:
            continue
        grants = locks[owner.lock].by_owner.get(owner.name, ()) if owner.lock in locks else ()
        grant = next((each for each in grants if each.token == belief.token), None)
        ended = grant is not None and grant.ended == "expired" and answered.get(grant.ended_by, math.inf)
        if ended and ended < belief.end:
            if any(fault.what.startswith("clock") for fault in faults):
                findings.counts["leases cut short"] += 1
            else:
                text = f"the lease of {owner.name} ended at the server {belief.end - ended:.3f} s too early"
                findings.violate("S2", text, owner.lock, ended)
        if owner.kept and belief.end <= end and _was_lost(owner, belief):
            findings.counts["lost"] += 1
            findings.counts["told"] += owner.told < math.inf
            why = _explanation(owner, belief, grant, faults, expectations)
            findings.counts["explained"] += why == ""
            if why:
                findings.violate("L6", f"{owner.name} lost its lease: {why}", owner.lock, belief.end)


def _was_lost(owner: Owner, belief: Belief) -> bool:
    if belief.why not in ("lost", "run out"):
        return False
    return belief.why == "lost" or not owner.bodies or owner.bodies[-1][1] > belief.end


def _explanation(
    owner: Owner,
    belief: Belief,
    grant: Grant | None,
    faults: Sequence[Fault],
    expectations: Expectations,
) -> str:
    """Why a loss was none of ours; returns what is wrong if it was."""
    lease = max(call.asked["lease"] for call in owner.calls if call.op == "acquire") / 1000
    margin = max(0.02 * lease, min(0.5, 0.1 * lease))
    if belief.until >= belief.deadline - margin - 0.02 or (grant and grant.ended == "forgotten"):
        return ""
    begin = belief.until - lease
    around = [fault for fault in faults if fault.start < belief.end and fault.end > begin]
    failed = [call for call in owner.calls if call.op == "renew" and call.unclear and call.sent > begin]
    if not around and not failed:
        return "nothing was broken"
    spared = lease * (1 - 1.1 / 3) - margin
    broken = sum(min(fault.end, belief.end) - max(fault.start, begin) for fault in around)
    if around and not failed and broken + expectations.slack < spared:
        return f"something was broken for {broken:.1f} s only, it should bear {spared:.1f}"
    return ""


def _last_asked(owners: Iterable[Owner]) -> dict[tuple[str, str], float]:
    """When somebody asked last for each place in each lock."""
    last: dict[tuple[str, str], float] = defaultdict(float)
    for owner in owners:
        for call in owner.calls:
            if call.op == "acquire":
                last[owner.lock, owner.waiter] = max(last[owner.lock, owner.waiter], call.sent)
    return last


def check_leaving(owners: Mapping[str, Owner], deaths: Mapping[int, float], findings: Findings) -> None:
    """L7 and L8: what was had is given back once, and who stops waiting leaves the line.

    Or the next attempt of the same activity goes on in its place.
    """
    last_asked = _last_asked(owners.values())
    for owner in owners.values():
        released = sum(
            bool(call.answer and call.answer.get("yes")) for call in owner.answered("release", "yes")
        )
        # a request that was cut off may be executed after the release, and is given back then, too
        echoes = sum(call.unclear for call in owner.calls if call.op == "acquire")
        findings.counts["echoes given back"] += max(released - 1, 0)
        if released > 1 + echoes:
            findings.violate(
                "L7", f"{owner.name} gave back {released} times", owner.lock, owner.calls[-1].sent
            )
        if owner.process in deaths or owner.left:
            continue
        last = [call for call in owner.calls if call.op == "acquire"][-1:]
        if not last:
            continue
        at = owner.calls[-1].answered
        if owner.belief or (last[0].answer and "token" in last[0].answer):
            findings.violate("L7", f"{owner.name} never gave back", owner.lock, at)
        elif last_asked[owner.lock, owner.waiter] == last[0].sent and (
            "presence" in last[0].asked or last[0].unclear
        ):
            findings.violate("L8", f"{owner.name} never left the line", owner.lock, at)


def check_rest(
    locks: Mapping[str, Lock],
    leftovers: Mapping[str, int],
    dead: Container[str],
    end: float,
    findings: Findings,
) -> None:
    """L9: at the end nobody holds or waits, every key has an end, and nothing else is left.

    What `dead` owners had ends by itself.
    """
    for name, lock in locks.items():
        state = lock.states[lock.current]
        # its end was told to a server whose writes were lost
        lost = {each for each, history in lock.served_by.items() if history != state.history}
        # nobody knows that the activity is past that already: the place goes when its time is over
        late = {
            member
            for member in state.records
            if member[0] in "cki" and _is_of(member, lock.put_back_late, {})
        }
        findings.counts["places put back late"] += sum(member[0] == "c" for member in late)
        left = Counter(
            member[0]
            for member in state.records.keys() - late
            if member[0] not in "#@" and not _is_of(member, dead, lock.asker) and not _is_of(member, lost, {})
        )
        if left:
            findings.violate("L9", f"left in the lock, by kind: {dict(left)}", name, end)
        if state.records and not state.ttl:
            findings.violate("L9", "the key has no end", name, end)
    for what, count in leftovers.items():
        if count:
            findings.violate("L9", f"{count} {what} are left", "", end)


def _is_of(member: str, dead: Container[str], asker: Mapping[str, str]) -> bool:
    name = member[1:].partition("|")[0]
    return name in dead or asker.get(name) in dead


def check_names(notes: Iterable[Note], findings: Findings) -> None:
    """S11: one name, one key."""
    names: dict[str, str] = {}
    keys: dict[str, str] = {}
    for note in notes:
        if name := note.more.get("name"):
            own = str(name)
            other_key, other_name = keys.setdefault(own, note.lock), names.setdefault(note.lock, own)
            if (other_key, other_name) != (note.lock, own):
                findings.violate("S11", f"{own} shares its key with {other_name}", note.lock, note.at)


def check_resources(notes: Iterable[Note], findings: Findings) -> None:
    """S12: a resource that refuses older tokens sees no accepted write out of order, slot by slot."""
    highest: dict[tuple[str, int], float] = defaultdict(float)
    for note in notes:
        if note.what != "write":
            continue
        accepted = note.more["accepted"]
        findings.counts["writes accepted" if accepted else "writes refused"] += 1
        place, token = (note.more["resource"], note.more["slot"]), note.more["token"]
        if accepted and token < highest[place]:
            text = f"{note.more['resource']} took token {token} after {highest[place]}"
            findings.violate("S12", text, note.lock, note.at)
        elif accepted:
            highest[place] = token
