"""Locks under load while everything that can break breaks, at random, for as long as one likes.

Several worker processes take limits and keyed locks on real servers; faults strike them, the servers and the
network, overlap, and heal. Which ones, and when, follows from the seed, which is printed first. The history
checker has the last word: the exit status is 1 if anything that is promised was not kept.
"""

import argparse
import asyncio
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from history.expectations import BETWEEN
from soak_display import display
from soak_round import Outcome, Watch, play, recheck
from soak_schedule import TOPOLOGIES, USUAL, Round, rounds

OVERHEAD = 4.0
"""Seconds of a round that servers need to start, and the checker to check."""


async def soak(chosen: Sequence[Round], directory: Path, watch: Watch) -> list[Outcome]:
    """Play rounds, one after the other. A bad one does not keep the others from being played."""
    outcomes = []
    ends = time.monotonic()
    for one in chosen:
        ends += one.seconds
        left = max(ends - time.monotonic() - OVERHEAD, one.seconds / 2)
        outcome = await play(one, directory / f"round-{one.number}-{one.topology}", left, watch)
        outcomes.append(outcome)
        print(line(outcome), flush=True)
        if not outcome.good:
            print(outcome.broken_off or outcome.report, f"\nhistory kept in {outcome.kept}", flush=True)
    return outcomes


def line(outcome: Outcome) -> str:
    """A round in a line."""
    verdict = "good" if outcome.good else "broken off" if outcome.broken_off else "BAD"
    return (
        f"round {outcome.round.number} on {outcome.round.topology}"
        f"{', which may forget' if outcome.round.forgets else ''}: "
        f"faults {outcome.injected.total()}, grants {outcome.count('grants')}, "
        f"leases lost {outcome.count('lost')}, explained {outcome.count('explained')}, {verdict} "
        f"(checked in {outcome.checking:.1f} s, at most {outcome.megabytes:.0f} MB so far)"
    )


def summary(outcomes: Sequence[Outcome]) -> str:
    """What happened in all rounds."""
    injected: Counter[str] = Counter()
    for outcome in outcomes:
        injected += outcome.injected
    kinds = [f"  {count:5}  {name}" for name, count in sorted(injected.items())]

    def total(name: str) -> float:
        return sum(outcome.count(name) for outcome in outcomes)

    most, limit = (max(each.count(name) for each in outcomes) for name in ("most at once", "limit"))
    violations = sum(len(each.report.violations) for each in outcomes if each.report)
    broken_off = sum(bool(each.broken_off) for each in outcomes)
    lines = [
        f"faults injected: {injected.total()} of {len(injected)} kinds",
        *kinds,
        f"rounds {len(outcomes)}, violations {violations}, broken off {broken_off}",
        f"grants {total('grants')}, most at once {most} of {limit}, limits changed {total('limits changed')}",
        f"leases lost {total('lost')}, explained {total('explained')}",
    ]
    more = ("answers lost", "grants forgotten", BETWEEN, "bodies after their lease", "writes refused")
    lines.extend(f"{name} {total(name)}" for name in more)
    return "\n".join(lines)


def verdict(outcomes: Sequence[Outcome], command: Sequence[str]) -> int:
    """The exit status; says how to repeat a bad round, which `command` began."""
    bad = [outcome for outcome in outcomes if not outcome.good]
    for outcome in bad:
        print(f"\nbad: round {outcome.round.number}, history kept in {outcome.kept}")
        print(f"  again:       {shlex.join([*command, '--round', str(outcome.round.number)])}")
        print(f"  check again: {shlex.join([*command[:2], '--recheck', str(outcome.kept)])}")
    return int(bool(bad))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="how long it goes on (2)")
    parser.add_argument("--seed", type=int, help="the faults of another run, again")
    parser.add_argument(
        "--on", nargs="+", choices=TOPOLOGIES, default=USUAL, help="where, in turn (standalone and sentinel)"
    )
    parser.add_argument("--round", type=int, help="this round only")
    parser.add_argument("--history", type=Path, help="where histories go; bad ones stay there")
    parser.add_argument("--recheck", type=Path, help="check a kept history again, and nothing else")
    chosen = parser.parse_args(arguments)
    if chosen.recheck:
        report = recheck(chosen.recheck)
        print(report)
        return int(not report.good)
    seed = secrets.randbelow(10**9) if chosen.seed is None else chosen.seed
    again = ["python", "tests/soak.py", "--minutes", f"{chosen.minutes:g}", "--seed", str(seed)]
    again += ["--on", *chosen.on]
    print(f"seed {seed}: {shlex.join(again)}", flush=True)
    plan = rounds(seed, chosen.minutes * 60, chosen.on)
    if chosen.round is not None:
        plan = [one for one in plan if one.number == chosen.round]
    directory = chosen.history or Path(tempfile.mkdtemp(prefix="lock-soak-"))
    with display(sum(one.seconds for one in plan)) as watch:
        outcomes = asyncio.run(soak(plan, directory, watch))
    print(summary(outcomes))
    status = verdict(outcomes, again)
    if not status and not chosen.history:
        shutil.rmtree(directory)
    return status


if __name__ == "__main__":
    sys.exit(main())
