"""Servers that can be cut off from each other, each side with clients of its own."""

import asyncio
from pathlib import Path
from typing import Self

from proxy import TcpProxy
from servers import ClusterSet, SentinelSet, command, info, wait_until

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST, free_ports

FIRST, ITS_REPLICA = "127.0.0.2", "127.0.0.3"
"""Addresses from which nodes of a Cluster connect to others, so that a gate can tell them apart."""
NEVER = 600_000
"""Milliseconds that no test lasts."""


def is_replica(server: RedisServer) -> bool:
    """Tell whether the server follows another one, and is in touch with it."""
    facts = info(server, "replication")
    return (facts["role"], facts.get("master_link_status")) == ("slave", "up")


def prepare(servers: SentinelSet) -> None:
    """Let the Sentinels look around more often: they take ten seconds to demote a stale primary else.

    And let them take no server for dead before `alert`, however busy the machine is.
    """
    for sentinel in servers.sentinels:
        servers.ask(sentinel, "DEBUG", "PUBLISH-PERIOD", 250, "INFO-PERIOD", 250)
    alert(servers, NEVER)


def alert(servers: SentinelSet, down_after_ms: int = 500) -> None:
    """Let the Sentinels fail over when the primary has not answered for so long."""
    for sentinel in servers.sentinels:
        servers.ask(sentinel, "SET", servers.service, "down-after-milliseconds", down_after_ms)


async def taken_over(servers: SentinelSet, old: RedisServer, timeout: float = 40) -> RedisServer:
    """Wait until the Sentinels have agreed on another primary, and return it; it is to stay that."""
    # Sentinels that cannot agree at once try again after seconds
    new = await asyncio.to_thread(servers.wait_for_failover, old.port, timeout)
    alert(servers, NEVER)
    return new


class SplitSentinelSet(SentinelSet):
    """A Sentinel set whose first primary everybody else reaches through one link, which can be cut.

    Beside the primary, on its side of the link, there is one more Sentinel: too few to fail over, so it goes
    on naming that primary to the clients on its side.

    Args:
        options: More flags for the servers with data.
        down_after_ms: How long the Sentinels go without an answer before they fail over.
        binary: The server to run; Valkey by default.
    """

    isolated_service = "isolated"
    """What the Sentinel beside the primary calls it: by another name the others would talk it round."""

    def __init__(self, *options: str, down_after_ms: int = 500, binary: Path | None = None) -> None:
        super().__init__(binary)
        self._options = options
        self._down_after_ms = down_after_ms
        self.link: TcpProxy
        self.first: RedisServer
        """The server that was the primary at first."""
        self.isolated_sentinel: RedisServer

    @property
    def near(self) -> dict[str, str]:
        """The variables of clients on the side of the first primary."""
        return {
            "REDIS_SENTINEL_HOSTS": f"{HOST}:{self.isolated_sentinel.port}",
            "REDIS_SENTINEL_SERVICE": self.isolated_service,
        }

    @property
    def far(self) -> dict[str, str]:
        """The variables of clients on the side of the replicas."""
        return {"REDIS_SENTINEL_HOSTS": self.sentinel_hosts, "REDIS_SENTINEL_SERVICE": self.service}

    def cut(self) -> None:
        """Let nothing pass between the two sides; connections stay open, and silent."""
        self.link.black_hole()
        alert(self, self._down_after_ms)

    def heal(self) -> None:
        """Let everything pass again, and wait until the first primary has become a replica."""
        self.link.cut()
        self.link.heal()
        wait_until(lambda: is_replica(self.first), "a demotion", 20)

    def _run(self, *options: str, port: int | None = None, config: str = "") -> RedisServer:
        if "--sentinel" not in options:
            options = (*options, *self._options)
        if not hasattr(self, "link"):
            (port,) = free_ports(1)
            self.link = self._running.enter_context(TcpProxy(port))
            self.first = super()._run(*options, "--replica-announce-port", str(self.link.port), port=port)
            return self.first
        link, direct = f"{HOST} {self.link.port}", f"{HOST} {self.first.port}"
        options = tuple(link if option == direct else option for option in options)
        return super()._run(*options, port=port, config=config.replace(f"{direct} 2\n", f"{link} 2\n"))

    def _start(self) -> None:
        super()._start()
        prepare(self)
        name = self.isolated_service
        lines = [
            f"sentinel monitor {name} {HOST} {self.first.port} 2",
            f"sentinel down-after-milliseconds {name} 1000",
            # it cannot see that it is cut off, and would call the replicas back
            f"sentinel rename-command {name} SLAVEOF no-such-command",
        ]
        self.isolated_sentinel = super()._run("--sentinel", config="\n".join(lines) + "\n")
        wait_until(self._knows_all, "a Sentinel beside the primary")

    def _knows_all(self) -> bool:
        primary = command(self.isolated_sentinel, "SENTINEL", "MASTER", self.isolated_service)
        facts = dict(zip(primary[::2], primary[1::2], strict=True))
        return (facts["flags"], facts["num-slaves"]) == ("master", "2")


class Gate(TcpProxy):
    """A proxy that leads connections from one address through another one, which can be broken by itself."""

    def __init__(self, target: int, address: str) -> None:
        super().__init__(target)
        self._server, self._address = target, address
        self.aside = TcpProxy(target)
        """What connections from that address pass through."""

    def __enter__(self) -> Self:
        """Begin to listen."""
        self.aside.__enter__()
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        """End both."""
        super().__exit__(*exc)
        self.aside.__exit__(*exc)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = writer.get_extra_info("peername")[0] == self._address
        self.target = self.aside.port if there else self._server  # it connects before anything else happens
        await super()._relay(reader, writer)


class SplitClusterSet(ClusterSet):
    """A Cluster with replicas whose first primary can be cut off from all other nodes, and from no client.

    Args:
        binary: The server to run; Valkey by default.
    """

    def __init__(self, binary: Path | None = None) -> None:
        super().__init__(1, binary)
        self._started = 0
        self._links: list[TcpProxy] = []
        """To the first primary's bus, from it to the others', and from its replica to its data."""

    def cut(self) -> None:
        """Let nothing pass between the first primary and the others; connections stay open, and silent."""
        for link in self._links:
            link.black_hole()

    def heal(self) -> None:
        """Let everything pass again, and wait until the first primary has become a replica."""
        for link in self._links:
            link.cut()
            link.heal()
        wait_until(lambda: is_replica(self.nodes[0]), "a demotion", 20)

    def _run(self, *options: str, port: int | None = None, config: str = "") -> RedisServer:
        self._started += 1
        bus = Gate(int(options[options.index("--cluster-port") + 1]), FIRST)
        self._running.enter_context(bus)
        options = (*options, "--cluster-announce-ip", HOST, "--cluster-announce-bus-port", str(bus.port))
        self._links.append(bus if self._started == 1 else bus.aside)
        if self._started == 1:
            (port,) = free_ports(1)
            data = self._running.enter_context(Gate(port, ITS_REPLICA))
            self._links.append(data.aside)
            options = (*options, "--cluster-announce-port", str(data.port), "--bind-source-addr", FIRST)
        elif self._started == 4:
            options = (*options, "--bind-source-addr", ITS_REPLICA)
        return super()._run(*options, port=port, config=config)
