"""Moves a lock between the nodes of a Cluster, in the steps that an operator's tools take."""

from collections.abc import Iterator
from contextlib import contextmanager

from servers import ClusterSet, command, wait_until

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.store import Claim


class SlotMove:
    """The slot of one lock on its way from the primary that has it to another one."""

    def __init__(self, cluster: ClusterSet, claim: Claim) -> None:
        self._key = lock_key("lock", claim.lock)
        self.slot = command(cluster.nodes[0], "CLUSTER", "KEYSLOT", self._key)
        self._nodes = cluster.nodes
        self.source = next(node for node in cluster.nodes[:3] if self._key in command(node, "KEYS", "*"))
        self.target = next(node for node in cluster.nodes[:3] if node is not self.source)

    def begin(self) -> None:
        """Open the slot at both ends and move the lock: the source answers ASK from now on."""
        source, target = (command(node, "CLUSTER", "MYID") for node in (self.source, self.target))
        command(self.target, "CLUSTER", "SETSLOT", self.slot, "IMPORTING", source)
        command(self.source, "CLUSTER", "SETSLOT", self.slot, "MIGRATING", target)
        command(self.source, "MIGRATE", HOST, self.target.port, self._key, 0, 5000)

    def finish(self) -> None:
        """Give the slot to the target: the source answers MOVED from now on."""
        target = command(self.target, "CLUSTER", "MYID")
        for node in (self.target, self.source):
            command(node, "CLUSTER", "SETSLOT", self.slot, "NODE", target)

    def turn_back(self) -> None:
        """Make it the way back, which is not begun."""
        self.source, self.target = self.target, self.source


def replica_of(cluster: ClusterSet, primary: RedisServer) -> RedisServer:
    """Return the replica of this primary, where each has one."""
    return cluster.nodes[3 + cluster.nodes.index(primary)]


@contextmanager
def hung(server: RedisServer) -> Iterator[None]:
    """Let a server hang inside the block."""
    server.pause()
    try:
        yield
    finally:
        server.resume()


def wait_for_replicas(cluster: ClusterSet) -> None:
    """Wait until each primary sees its replica, and the replica is in sync."""
    for primary in cluster.nodes[:3]:
        wait_until(lambda node=primary: command(node, "WAIT", 1, 100) == 1, "a replica in sync")
