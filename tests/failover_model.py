"""Which set-ups keep the promise of a lock over restarts and failovers, and how the others break it.

    python tests/failover_model.py            a table, the smallest safe grace, and how promises break

Every state of a small model is visited: `failover_states` says what it has and leaves out, `failover_steps`
what happens in it, `failover_cases` what is tried.
"""

from __future__ import annotations

import math

from failover_cases import CASES, LEASE, smallest_grace
from failover_states import NEVER, Setup, State, begin, believing, in_order
from failover_steps import Step, steps

PROMOTIONS = range(1, 5)
LAST_WRITES = range(5)
NAMES = "WXYZ"


def table() -> str:
    """All cases, as Markdown."""
    lines = ["| fault | done about it | one holder at a time | because | states |", "|---|---|---|---|--:|"]
    for case in CASES:
        verdict = "yes" if all(way is None for *_, way in case.found) else "**no**"
        lines.append(f"| {case.fault} | {case.done} | {verdict} | {case.why} | {case.states:,} |")
    return "\n".join(lines)


def graces() -> str:
    """The smallest safe grace by M and D, as Markdown."""
    lines = [
        f"| lease {LEASE} | " + " | ".join(f"D = {promoted}" for promoted in PROMOTIONS) + " |",
        "|---" * (len(PROMOTIONS) + 1) + "|",
    ]
    for until in LAST_WRITES:
        found = (smallest_grace(LEASE, until, promoted) for promoted in PROMOTIONS)
        cells = ("none" if math.isnan(grace) else f"{grace}" for grace in found)
        lines.append(f"| M = {until} | {' | '.join(cells)} |")
    return "\n".join(lines)


def counterexamples() -> str:
    """How each unsafe case breaks the promise, in as few steps as there can be."""
    stories = [
        [case.name, *(f"    {line}" for line in tell(setup, way))]
        for case in CASES
        for setup, _, way in case.found
        if way is not None
    ]
    return "\n\n".join("\n".join(story) for story in stories)


def tell(setup: Setup, way: list[Step]) -> list[str]:
    """A way in words, with the time in front. Takes the steps anew, and sees that they end as said."""
    servers = "AA" if restarts(setup) else "ABC"
    state, names, now, lines = begin(setup), NAMES[: setup.owners], 0, []
    for step in way:
        before, state = state, dict(steps(setup, state))[step]
        if step[0] == "time passes":
            now += 1
            continue
        lines.append(f"{now}  {_sentence(setup, step, (before, state), names, servers)}")
        if step[0] == "returns":
            servers = servers[1] + servers[0] + servers[2:]
        state, names = _sorted(state, names)
    _, names = _sorted(state, names)
    state = in_order(state)
    assert believing(state) > setup.slots
    who = sorted(name for name, owner in zip(names, state.owners, strict=True) if owner.believes)
    return [*lines, f"   {' and '.join(who)} run, where {setup.slots} may"]


def restarts(setup: Setup) -> bool:
    """Whether what takes over is the same server with what its disk has."""
    return setup.writes == NEVER and setup.promoted == 0


def _sorted(state: State, names: str) -> tuple[State, str]:
    """The owners in the order in which the search has them, and their names along with them."""
    owners = list(in_order(state).owners)
    left, new = dict(enumerate(state.owners)), []
    for owner in owners:
        number = next(number for number, other in left.items() if other == owner)
        del left[number]
        new.append(names[number])
    return state._replace(owners=tuple(owners)), "".join(new)


def _sentence(setup: Setup, step: Step, change: tuple[State, State], names: str, servers: str) -> str:
    what, *details = step
    happens = {
        "fails": "crashes" if setup.writes == NEVER else "is cut off" if 0 in setup.writes else "hangs",
        "is promoted": "is back" if restarts(setup) else what,
        "is up to date": what,
        "returns": f"returns as replica of {servers[1]}",
    }
    if what in happens:
        return f"{servers[details[0]]} {happens[what]}"
    number = details[0]
    was, now = (state.owners[number] for state in change)
    if what == "hears":
        return f"{names[number]} hears that it is " + ("renewed" if was.over else "granted")
    server, waits = details[1], ", and waits for confirmation" if now.asked else ""
    if what == "asks" and not now.records[server]:
        return f"{names[number]} asks {servers[server]}, and has to wait for the grace or a slot"
    if what == "asks":
        lease = f" for {now.lease}" if len(setup.leases) > 1 else ""
        return f"{names[number]} is granted the lock{lease} by {servers[server]}{waits}"
    return f"{names[number]} {what} at {servers[server]}{waits}"


if __name__ == "__main__":
    print(table(), graces(), counterexamples(), sep="\n\n")
