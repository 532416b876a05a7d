"""Where a soak takes place: servers that can be reached, broken and brought back."""

import asyncio
import contextlib
import time
from collections.abc import Iterator

import redis
import redis_troubles as troubles
from fault_proxy import FaultProxy
from fault_servers import is_replica, prepare
from proxy import _Way
from redis.backoff import NoBackoff
from redis.retry import Retry
from servers import ClusterSet, SentinelSet, command, info, wait_until
from topologies import OnCluster, Sentinels

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST

FOR_GOOD = ("--appendonly", "yes", "--appendfsync", "always")
DOWN_AFTER_MS = 1000
"""A busy machine is slow to answer without being down."""
PATIENCE = 40.0


class PatientProxy(FaultProxy):
    """Looks less often whether a connection that its client has closed may be closed at the server too.

    In a long outage many clients connect again and again, which makes for thousands of such connections.
    """

    async def _open(self, way: _Way) -> bytes:
        while way in self._swallowed:  # noqa: ASYNC110 - as it is there
            await asyncio.sleep(0.2)
        return b""


class Arena:
    """What all kinds of places have in common."""

    servers: list[RedisServer]
    """All that may have locks."""
    variables: dict[str, str]
    """By which clients find it."""

    def primaries(self) -> list[RedisServer]:
        """The servers that grant."""
        raise NotImplementedError

    def fail_over(self) -> RedisServer:
        """Kill a primary, and return it when another server has taken over."""
        raise NotImplementedError

    def bring_back(self, server: RedisServer) -> None:
        """Start it again as a replica."""
        raise NotImplementedError

    def replace(self) -> None:
        """Let a replica take over from a primary that is well."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until all replicas have what their primary has, and one more failure is allowed."""

    def ways(self) -> dict[str, int]:
        """Ports by which servers should answer: when a round breaks off, is it they, or who uses them?"""
        return {f"primary {each.port}": each.port for each in self.primaries()}

    def health(self) -> str:
        """How long each way takes to an answer, on a new connection as every client makes it."""
        return "; ".join(f"{way}: {_answers(port)}" for way, port in self.ways().items())


class Standalone(Arena):
    """One server that forgets nothing, behind a network that can be broken."""

    def __init__(self, server: RedisServer, proxy: FaultProxy) -> None:
        self.server, self.proxy = server, proxy
        self.servers = [server]
        self.variables = {"REDIS_URL": proxy.url()}

    def primaries(self) -> list[RedisServer]:
        return self.servers

    def ways(self) -> dict[str, int]:
        return {
            "server": self.server.port,
            f"proxy with {self.proxy.connections} connections": self.proxy.port,
        }


class SentinelArena(Arena):
    """A primary and two replicas under three Sentinels."""

    def __init__(self, servers: SentinelSet) -> None:
        self._servers = servers
        self._topology = Sentinels(servers)
        self.servers = [servers.primary, *servers.replicas]
        self.sentinels = servers.sentinels
        self.variables = {name.upper(): str(value) for name, value in self._topology.address.items()}
        prepare(servers)
        for sentinel in self.sentinels:
            servers.ask(sentinel, "SET", servers.service, "down-after-milliseconds", DOWN_AFTER_MS)

    @property
    def primary(self) -> RedisServer:
        return self._servers.primary

    @property
    def replicas(self) -> list[RedisServer]:
        return self._servers.replicas

    def primaries(self) -> list[RedisServer]:
        return [self.primary]

    def fail_over(self) -> RedisServer:
        return self._topology.fail_over()

    def bring_back(self, server: RedisServer) -> None:
        self._topology.bring_back(server)
        self.wait_until_replica(server)

    def replace(self) -> None:
        old = self.primary
        service = self._servers.service
        wait_until(
            lambda: self._servers.ask(self.sentinels[0], "FAILOVER", service) == "OK", "a failover", PATIENCE
        )
        self.wait_for_failover(old)
        self.wait_until_replica(old)

    def wait_for_failover(self, old: RedisServer) -> None:
        """Wait until the Sentinels agree on another primary."""
        self._servers.wait_for_failover(old.port, PATIENCE)

    def wait_until_replica(self, server: RedisServer) -> None:
        """Wait until a server follows the new primary."""
        wait_until(lambda: is_replica(server), "a replica", PATIENCE)

    def settle(self) -> None:
        self._topology.settle()


class ClusterArena(Arena):
    """Three primaries with a replica each; the first pair takes turns."""

    def __init__(self, servers: ClusterSet) -> None:
        self._topology = OnCluster(servers)
        self.servers = servers.nodes
        self.variables = {name.upper(): str(value) for name, value in self._topology.address.items()}

    def primaries(self) -> list[RedisServer]:
        return [self._topology.primary, *self.servers[1:3]]

    def fail_over(self) -> RedisServer:
        return self._topology.fail_over()

    def bring_back(self, server: RedisServer) -> None:
        self._topology.bring_back(server)
        wait_until(lambda: is_replica(server), "a replica", PATIENCE)

    def replace(self) -> None:
        old, (new,) = self._topology.primary, self._topology.replicas
        command(new, "CLUSTER", "FAILOVER")
        wait_until(lambda: info(new, "replication")["role"] == "master", "a failover", PATIENCE)
        self._topology.primary, self._topology.replicas = new, [old]
        wait_until(lambda: is_replica(old), "a replica", PATIENCE)

    def settle(self) -> None:
        self._topology.settle()


def _answers(port: int) -> str:
    begun = time.monotonic()
    try:
        with redis.Redis(host=HOST, port=port, socket_timeout=5, retry=Retry(NoBackoff(), 0)) as client:
            client.ping()
    except redis.RedisError as error:
        return f"{type(error).__name__} after {time.monotonic() - begun:.2f} s"
    return f"answered in {time.monotonic() - begun:.2f} s"


@contextlib.contextmanager
def arena(topology: str) -> Iterator[Arena]:
    """Start one."""
    if topology == "standalone":
        with RedisServer(*troubles.NEEDS, *FOR_GOOD) as server, PatientProxy(server.port) as proxy:
            yield Standalone(server, proxy)
    elif topology == "sentinel":
        with SentinelSet() as servers:
            yield SentinelArena(servers)
    else:
        with ClusterSet(replicas=1) as servers:
            yield ClusterArena(servers)
