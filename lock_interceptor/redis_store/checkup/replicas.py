"""Whether the replicas suit the profile (``LOCK_DURABILITY``), and whether clocks agree."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from lock_interceptor.redis_store.checkup.findings import Finding, Server
from lock_interceptor.settings import Durability

Fields = Mapping[str, str]
LOCAL = 5.0
"""Seconds by which this machine's clock may differ."""
BETWEEN = 0.5
"""Seconds by which the servers' clocks may differ: a failover makes leases end earlier or later by that."""


def replica_addresses(info: Fields) -> list[tuple[str, int]]:
    """Where the replicas of a primary are, by what they announce to it."""
    states = (
        _state(value) for name, value in info.items() if name.startswith("slave") and name[5:].isdigit()
    )
    return [(state["ip"], int(state["port"])) for state in states]


def check_role(server: Server, info: Fields, *, cluster: bool) -> Iterator[Finding]:
    """A server that is addressed on its own has to be a primary, and not part of a Cluster."""
    if info.get("role") == "slave":
        yield server.found(
            "role",
            "problem",
            f"it is a replica of {info.get('master_host')}:{info.get('master_port')}: it takes no locks",
            "let the settings lead to the primary, also after a failover: REDIS_SENTINEL_HOSTS",
        )
    if info.get("cluster_enabled") == "1" and not cluster:
        message = "it is a node of a Cluster, and has some of the locks only"
        yield server.found("role", "problem", message, "set REDIS_CLUSTER=true")


def check_replicas(
    server: Server, info: Fields, profile: Durability, *, replicated: bool
) -> Iterator[Finding]:
    """Enough of them for what has to be confirmed; `replicated` says that somebody would promote one."""
    connected = int(info.get("connected_slaves", 0))
    states = [_state(info.get(f"slave{number}", "")) for number in range(connected)]
    behind = [state for state in states if state.get("state", "online") != "online"]
    count = f"{connected} replica{'' if connected == 1 else 's'} connected"
    if behind:
        message = f"{count}, {len(behind)} of them not in sync yet"
        yield server.found("replicas", "warning", message, "wait, or look at the logs of the replicas")
    elif connected:
        note = ""
        if profile == "primary" and replicated:
            note = "; LOCK_DURABILITY primary does not wait for them: a failover may forget grants"
        yield server.found("replicas", "warning" if note else "ok", count + note, _FAILOVER if note else "")
    elif profile == "strict":
        message = "no replica, and LOCK_DURABILITY is strict: no lock is ever granted"
        yield server.found("replicas", "problem", message, "give it a replica, or choose another profile")
    elif replicated or profile == "failover":
        message = "no replica: nothing confirms a grant, and nobody can be promoted"
        yield server.found("replicas", "warning", message, "give it a replica")
    else:
        yield server.found("replicas", "ok", "no replica, and none is needed with LOCK_DURABILITY primary")


_FAILOVER = "leave LOCK_DURABILITY to its default, failover"


def check_isolation(server: Server, info: Fields, config: Fields, down_after_ms: int) -> Iterator[Finding]:
    """A primary that is cut off has to stop granting before Sentinel promotes another one."""
    lag = int(config.get("min-replicas-max-lag", config.get("min-slaves-max-lag", 0)))
    advice = max(down_after_ms // 1000 - 2, 1)
    remedy = f"CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag {advice}, at all servers"
    if "min_slaves_good_slaves" not in info:
        yield server.found(
            "isolation",
            "warning",
            "min-replicas-to-write is 0: a primary that is cut off goes on granting locks beside the new one",
            remedy,
        )
    elif lag and lag * 1000 >= down_after_ms:
        yield server.found(
            "isolation",
            "warning",
            f"min-replicas-max-lag is {lag} s, and another primary is promoted after "
            f"{down_after_ms / 1000:g} s: for a while two may grant locks",
            f"set min-replicas-max-lag to {advice}, or raise down-after-milliseconds",
        )
    else:
        yield server.found("isolation", "ok", "a primary that is cut off stops granting locks")


async def clock_offset(server: Server) -> float:
    """By how many seconds the server's clock is ahead of this machine's, as far as can be told."""
    before, started = time.time(), time.monotonic()
    seconds, micros = await server.ask("TIME")
    took = time.monotonic() - started
    return int(seconds) + int(micros) / 1e6 - before - took / 2


def check_clocks(offsets: Sequence[tuple[Server, float]], lease: timedelta) -> Iterator[Finding]:
    """Leases are judged by the server's clock alone, so it is the servers that have to agree."""
    if not offsets:
        return
    first, ahead = offsets[0]
    if abs(ahead) > LOCAL:
        way = "ahead of" if ahead > 0 else "behind"
        yield first.found(
            "clock",
            "warning",
            f"its clock is {abs(ahead):.1f} s {way} this machine's: locks do not mind, but logs disagree",
            "let NTP keep both",
        )
    else:
        yield first.found("clock", "ok", "its clock agrees with this machine's")
    slowest, fastest = min(offsets, key=lambda each: each[1]), max(offsets, key=lambda each: each[1])
    apart = fastest[1] - slowest[1]
    if apart > BETWEEN:
        yield fastest[0].found(
            "clock",
            "problem" if apart > lease.total_seconds() / 3 else "warning",
            f"its clock is {apart:.1f} s ahead of that of {slowest[0].where}: a failover between them ends "
            "leases early, or keeps dead ones",
            "let NTP keep the clocks of all servers, and slew rather than step",
        )
    elif len(offsets) > 1:
        yield Finding("clock", "ok", f"the clocks of {len(offsets)} servers agree")


def _state(text: str) -> Fields:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)
