"""Whether a Cluster is whole, and which nodes it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from lock_interceptor.errors import LockConfigurationError, LockStoreUnavailable
from lock_interceptor.redis_store.checkup.findings import Finding, Server, info_fields, pairs
from lock_interceptor.settings import Durability

SLOTS = 16_384
Address = tuple[str, int]


@dataclass(slots=True)
class Nodes:
    """Primaries with their replicas, and what is wrong with them."""

    replicas_of: dict[Address, list[Address]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


async def check_cluster(server: Server, *, lease: timedelta, profile: Durability) -> Nodes:
    """Ask one node for all.

    Raises:
        LockStoreUnavailable: no answer.
        LockConfigurationError: it refuses, or is no Cluster.
    """
    nodes, covered = Nodes(), 0
    try:
        slots = await server.ask("CLUSTER", "SLOTS")
    except LockStoreUnavailable as error:
        if "cluster support disabled" not in str(error):
            raise
        raise LockConfigurationError(f"{server.where} is not a Cluster: set REDIS_CLUSTER=false") from None
    for first, last, primary, *replicas in slots:
        covered += int(last) - int(first) + 1
        nodes.replicas_of[_address(primary, server)] = [_address(each, server) for each in replicas]
    if covered < SLOTS:
        message = f"{SLOTS - covered:,} of {SLOTS:,} slots have no node: the locks in them cannot be taken"
        nodes.findings.append(Finding("cluster", "problem", message, "look at redis-cli --cluster check"))
    else:
        count = len(nodes.replicas_of)
        nodes.findings.append(Finding("cluster", "ok", f"all slots are covered, by {count} primaries"))
    nodes.findings += _bare(nodes, profile)
    state = info_fields(await server.ask_if_allowed("CLUSTER", "INFO"))
    if state is None:
        message, remedy = "the user may not ask for the Cluster's state", "+cluster|info lets the doctor ask"
        nodes.findings.append(server.found("cluster", "unknown", message, remedy))
    elif state.get("cluster_state") != "ok":
        message = f"the Cluster's state is {state.get('cluster_state')}, so it may refuse locks"
        nodes.findings.append(server.found("cluster", "problem", message, "look at CLUSTER NODES"))
    config = pairs(await server.ask_if_allowed("CONFIG", "GET", "cluster-node-timeout"))
    timeout = int(config.get("cluster-node-timeout", 0)) / 1000
    if timeout > lease.total_seconds() / 3:
        message = (
            f"a failover begins after {timeout:g} s (cluster-node-timeout), and a lease is "
            f"{lease.total_seconds():g} s: running activities may lose their locks in it"
        )
        remedy = "CONFIG SET cluster-node-timeout 5000, or raise LOCK_LEASE_SECONDS"
        nodes.findings.append(server.found("cluster", "warning", message, remedy))
    return nodes


def _bare(nodes: Nodes, profile: Durability) -> Iterator[Finding]:
    bare = [f"{host}:{port}" for (host, port), replicas in nodes.replicas_of.items() if not replicas]
    if bare:
        yield Finding(
            "cluster",
            "problem" if profile == "strict" else "warning",
            f"no replica of {', '.join(bare)}: when it fails its locks cannot be taken",
            "give each primary a replica",
        )


def _address(node: list[Any], server: Server) -> Address:
    """A node that does not know its own address leaves it empty: then it is the one that was asked."""
    host = node[0] or server.where.rpartition(":")[0]
    return str(host), int(node[1])
