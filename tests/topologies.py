"""One Redis, a Sentinel set and a Cluster, each with replicas: to let the primary of a lock crash.

A topology is shared by several tests. Each leaves it with all servers running, though in other roles.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis_tools import new_claim, settings_for
from servers import ClusterSet, SentinelSet, command, info, wait_until

from lock_interceptor import LockSettings
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.store import Claim

KINDS = ["one", "sentinel", "cluster"]


class Topology:
    """Where locks are kept."""

    kind: str
    address: dict[str, Any]
    """How to reach it, as settings."""
    primary: RedisServer
    replicas: list[RedisServer]

    def settings_for(self, **values: object) -> LockSettings:
        """Return settings that lead to it, for locks that no other test has."""
        return settings_for(None, **self.address, **values)

    def claim(self, *, limit: int = 1) -> Claim:
        """Return a claim whose lock `primary` has."""
        return new_claim(limit=limit)

    def fail_over(self) -> RedisServer:
        """Kill the primary, and return it when another one, or it itself again, acts as such."""
        raise NotImplementedError

    def bring_back(self, server: RedisServer) -> None:
        """Start it again as a replica of the new primary."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until all replicas are connected, and have what the primary has."""
        key = lock_key("lock", self.claim().lock)
        wait_until(lambda: in_sync(self.primary, len(self.replicas), key), "replicas in sync", 30)


def in_sync(primary: RedisServer, replicas: int, key: str) -> bool:
    """Tell whether so many replicas have all that their primary has, and get what comes next at once.

    The first confirmation may be that of the copy with which a replica begins. What follows it is sent to the
    replica only when that has reported, up to a second later.
    """
    with redis.Redis(host=HOST, port=primary.port, socket_timeout=5, protocol=2) as client:
        pipeline = client.pipeline(transaction=False)
        for _ in range(2):
            pipeline.set(f"{key}:sync", 1, px=1)  # WAIT is about writes of its own connection and all before
            pipeline.wait(replicas, 1500)
        return pipeline.execute()[1::2] == [replicas] * 2


class One(Topology):
    """A server with a replica, which nobody would promote."""

    kind = "one"

    def __init__(self, primary: RedisServer, replica: RedisServer) -> None:
        self.primary, self.replicas = primary, [replica]
        self.address = {"redis_host": HOST, "redis_port": primary.port}

    def fail_over(self) -> RedisServer:
        self.primary.kill()
        self.primary.start()
        return self.primary

    def bring_back(self, server: RedisServer) -> None:
        if not server.running:
            server.start()


class Sentinels(Topology):
    """A primary and two replicas under three Sentinels."""

    kind = "sentinel"

    def __init__(self, servers: SentinelSet) -> None:
        self._servers = servers
        self.address = {"redis_sentinel_hosts": servers.sentinel_hosts}

    @property
    def primary(self) -> RedisServer:
        return self._servers.primary

    @property
    def replicas(self) -> list[RedisServer]:
        return self._servers.replicas

    def fail_over(self) -> RedisServer:
        old = self.primary
        old.kill()
        self._servers.wait_for_failover(old.port, 30)
        return old

    def bring_back(self, server: RedisServer) -> None:
        server.start()
        command(server, "REPLICAOF", HOST, self.primary.port)  # Sentinel would do so after eight seconds

    def settle(self) -> None:
        super().settle()
        wait_until(self._all_well, "Sentinels that see all servers", 30)

    def _all_well(self) -> bool:
        rows = [
            dict(zip(row[::2], row[1::2], strict=True))
            for sentinel in self._servers.sentinels
            for row in self._servers.ask(sentinel, "REPLICAS", self._servers.service)
        ]
        return len(rows) == 6 and all(row["flags"] == "slave" for row in rows)


class OnCluster(Topology):
    """The first part of a Cluster whose three parts have a replica each."""

    kind = "cluster"

    def __init__(self, servers: ClusterSet) -> None:
        self._servers = servers
        self.primary, self.replicas = servers.nodes[0], [servers.nodes[3]]
        # by a node that stays
        self.address = {"redis_port": servers.nodes[1].port, "redis_host": HOST, "redis_cluster": True}

    def claim(self, *, limit: int = 1) -> Claim:
        while True:
            claim = new_claim(limit=limit)
            if (
                command(self._servers.nodes[1], "CLUSTER", "KEYSLOT", lock_key("lock", claim.lock))
                < 16_384 // 3
            ):
                return claim

    def fail_over(self) -> RedisServer:
        old, (new,) = self.primary, self.replicas
        old.kill()
        wait_until(lambda: info(new, "replication")["role"] == "master", "a failover", 30)
        wait_until(self._is_whole, "a Cluster that knows its new primary", 30)
        self.primary, self.replicas = new, [old]
        return old

    def bring_back(self, server: RedisServer) -> None:
        server.start()

    def settle(self) -> None:
        super().settle()
        wait_until(self._is_whole, "a whole Cluster", 30)

    def _is_whole(self) -> bool:
        running = [node for node in self._servers.nodes if node.running]
        return all("cluster_state:ok" in command(node, "CLUSTER", "INFO") for node in running)


@contextmanager
def topology(kind: str) -> Iterator[Topology]:
    """Start one of these kinds."""
    if kind == "one":
        files = ("--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0")
        with RedisServer(*files) as primary, RedisServer("--replicaof", f"{HOST} {primary.port}") as replica:
            yield One(primary, replica)
    elif kind == "sentinel":
        with SentinelSet() as servers:
            yield Sentinels(servers)
    else:
        with ClusterSet(replicas=1) as servers:
            yield OnCluster(servers)
