"""Whether the Sentinels can be reached, agree, and can promote a replica in time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from lock_interceptor.errors import LockConfigurationError, LockStoreUnavailable
from lock_interceptor.redis_store.checkup.findings import Finding, Level, Server, pairs
from lock_interceptor.settings import Durability

State = Mapping[str, str]
MAJORITY = 3
"""Fewer Sentinels cannot outvote one that is cut off."""


@dataclass(slots=True)
class Watched:
    """What the Sentinels say."""

    findings: list[Finding] = field(default_factory=list)
    primary: tuple[str, int] | None = None
    down_after_ms: int = 0
    answered: bool = False
    """Whether any of them answered, be it to refuse."""


async def check_sentinels(
    sentinels: Sequence[Server], service: str, *, lease: timedelta, profile: Durability
) -> Watched:
    """Ask all of them, and compare."""
    watched, states = Watched(), list[tuple[Server, State]]()
    for server, answer in await asyncio.gather(*map(_ask, sentinels)):
        watched.answered |= not isinstance(answer, LockStoreUnavailable)
        if isinstance(answer, Exception):
            watched.findings.append(_refusal(server, answer))
        elif service in answer:
            states.append((server, answer[service]))
        else:
            known = ", ".join(sorted(answer)) or "none"
            message = f"it does not watch {service} (it watches {known})"
            watched.findings.append(
                server.found("sentinel", "problem", message, "check REDIS_SENTINEL_SERVICE")
            )
    if not states:
        return watched
    primaries = {(state["ip"], int(state["port"])) for _, state in states}
    if len(primaries) > 1:
        named = ", ".join(sorted(f"{host}:{port}" for host, port in primaries))
        message = f"they name different primaries: {named}"
        remedy = "wait for a failover to end; if it lasts, look at their logs and the network between them"
        watched.findings.append(Finding("sentinel", "problem", message, remedy))
    _, state = states[0]
    watched.primary = state["ip"], int(state["port"])
    watched.down_after_ms = int(state["down-after-milliseconds"])
    watched.findings += _judge(states, len(sentinels), lease=lease, profile=profile)
    return watched


def _judge(
    states: Sequence[tuple[Server, State]], configured: int, *, lease: timedelta, profile: Durability
) -> list[Finding]:
    found = []
    _, state = states[0]
    total = max(int(each["num-other-sentinels"]) for _, each in states) + 1
    quorum, down_after = int(state["quorum"]), int(state["down-after-milliseconds"]) / 1000
    if quorum > total:
        message = f"the quorum is {quorum} and there are {total} Sentinels: they never fail over"
        found.append(Finding("sentinel", "problem", message, "SENTINEL SET <service> quorum, or start more"))
    elif total < MAJORITY:
        message = f"{total} Sentinel{'' if total == 1 else 's'}: with one lost nobody fails over"
        found.append(Finding("sentinel", "warning", message, "run at least three, on different machines"))
    elif len(states) <= total / 2:
        message = f"{len(states)} of {total} Sentinels answer here, which is no majority"
        found.append(Finding("sentinel", "warning", message, "see whether the others are well"))
    else:
        found.append(Finding("sentinel", "ok", f"{total} Sentinels, a quorum of {quorum}"))
    if configured == 1 and total > 1:
        message = f"REDIS_SENTINEL_HOSTS names one of {total} Sentinels: without it no primary is found"
        found.append(Finding("sentinel", "warning", message, "name them all"))
    for server, each in states:
        if "down" in each["flags"]:
            message = f"it takes the primary for down ({each['flags']})"
            found.append(server.found("sentinel", "problem", message, "see whether the primary is well"))
    if max(int(each["num-slaves"]) for _, each in states) == 0:
        level: Level = "problem" if profile == "strict" else "warning"
        message = "no replica is known that could be promoted"
        found.append(Finding("sentinel", level, message, "give the primary a replica"))
    if down_after > lease.total_seconds() / 3:
        message = (
            f"a failover begins after {down_after:g} s (down-after-milliseconds), and a lease is "
            f"{lease.total_seconds():g} s: running activities may lose their locks in it"
        )
        remedy = "SENTINEL SET <service> down-after-milliseconds 5000, or raise LOCK_LEASE_SECONDS"
        found.append(Finding("sentinel", "warning", message, remedy))
    return found


async def _ask(server: Server) -> tuple[Server, dict[str, State] | Exception]:
    try:
        rows = await server.ask("SENTINEL", "MASTERS")
    except (LockStoreUnavailable, LockConfigurationError) as error:
        return server, error
    return server, {state["name"]: state for state in map(pairs, rows)}


def _refusal(server: Server, error: Exception) -> Finding:
    if isinstance(error, LockStoreUnavailable):
        message = f"this Sentinel gives no answer ({error})"
        return server.found(
            "sentinel", "warning", message, "see whether it is well, and can be reached from here"
        )
    remedy = (
        "check REDIS_SENTINEL_USERNAME and REDIS_SENTINEL_PASSWORD, and: ACL SETUSER <user> +sentinel|masters"
    )
    return server.found("sentinel", "problem", str(error), remedy)
