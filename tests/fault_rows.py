"""How a fault under load is judged on servers with replicas: by the history checker, and in one line."""

import asyncio
import itertools
from collections.abc import Callable, Mapping

import history
from fault_load import Load
from figures import measured
from history import Expectations
from servers import info, wait_until

from lock_interceptor.dev import RedisServer

OVERLAPS = "overlaps between histories"
ENOUGH = {"grants": 50, "faults": 1, "renewals": 1}
"""What each run has to have exercised."""


async def under_load(loaded: Load, grants: int = 50) -> None:
    """Wait until so much has happened that a fault finds everything in use, also what is held for long."""
    held_for_long = loaded.plan.locks[-1].name
    await loaded.until(lambda: loaded.grants() >= grants and loaded.grants(held_for_long) >= 4, "a busy time")


async def soon(condition: Callable[[], object], what: str, timeout: float = 20) -> None:
    """Wait until a condition is true; a server that resets our connection meanwhile has not said so yet."""
    await asyncio.to_thread(wait_until, condition, what, timeout)


def conclude(
    run: history.Run,
    what: str,
    loaded: Load,
    *,
    at_least: Mapping[str, int] | None = None,
    at_most: Mapping[str, int] | None = None,
) -> history.Report:
    """Check the history after the load has ended, and print what became of the fault."""
    expected = Expectations(at_least={**ENOUGH, **(at_least or {})}, at_most=at_most or {}, poll=loaded.poll)
    report = run.check(expected)
    counts = report.counts
    measured(
        f"{what}, {loaded.environment.get('LOCK_DURABILITY', 'default')}: injected {counts['faults']}, "
        f"grants {counts['grants']}, most at once {counts['most at once']} of {counts['limit']}, "
        f"leases lost {counts['lost']}, explained {counts['explained']}, "
        f"overlaps {counts[OVERLAPS]}, violations {len(report.violations)}"
    )
    return report


def replid(server: RedisServer) -> str:
    """Which history of writes the server has, or began."""
    return info(server, "replication")["master_replid"]


def graces(run: history.Run) -> dict[str, int]:
    """How often nothing new was to be granted for a while, by lock."""
    counts: dict[str, int] = {}
    for row in run.rows():
        began = any(change[:2] == ["+", "#g"] for change in row.did)
        counts[row.lock] = counts.get(row.lock, 0) + began
    return counts


def granted_by(run: history.Run, server: RedisServer, since: float = 0) -> int:
    """How many grants this server made after a time of day."""
    rows = (row for row in run.rows() if row.server == str(server.log) and (row.us or 0) > since * 1e6)
    return sum(change[0] == "+" and change[1][0] == "t" for row in rows for change in row.did)


def requests_at(run: history.Run, server: RedisServer, since: float) -> int:
    """How many requests this server executed after a time of day."""
    rows = (row for row in run.rows() if row.server == str(server.log))
    return sum((row.us or 0) > since * 1e6 for row in rows)


def longest_pause(run: history.Run, lock: str, since: float) -> float:
    """The longest time without a grant of this lock, in seconds, after a time of day."""
    times = [
        (row.us or 0) / 1e6
        for row in run.rows()
        if row.lock == lock and any(change[0] == "+" and change[1][0] == "t" for change in row.did)
    ]
    return max(after - before for before, after in itertools.pairwise(times) if after > since)
