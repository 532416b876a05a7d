"""Connections to Redis for one event loop: one server, Sentinel or Cluster, as `LockSettings` say.

redis-py's own retries are off everywhere: it would send a script a second time by itself, and a hung
Sentinel would take a minute. Who calls knows how much time there is, and repeats with the same owner.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import AbstractConnection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException, RedisError

from lock_interceptor.errors import LockConfigurationError, LockStoreUnavailable
from lock_interceptor.redis_store.client_connections import with_our_connections
from lock_interceptor.redis_store.cluster import close_all, drop_closed
from lock_interceptor.redis_store.permits import Permits
from lock_interceptor.redis_store.sentinels import Address, SentinelClient, Sentinels
from lock_interceptor.redis_store.shared_connection import SharedConnection
from lock_interceptor.redis_store.time_limits import within
from lock_interceptor.redis_store.wire import Wire
from lock_interceptor.settings import LockSettings

MAX_CONNECTIONS = 16
"""For renewals, and as many for everything else."""
MAX_TIMEOUT = 1.0


def request_timeout(settings: LockSettings) -> float:
    """Seconds to wait for one answer: short against the lease, so that a renewal can be repeated."""
    return max(0.2, min(MAX_TIMEOUT, settings.lease.total_seconds() / 10))


def address(settings: LockSettings) -> str:
    """The server as messages name it, without user and password."""
    if settings.redis_sentinel_hosts:
        hosts = ",".join(f"{host}:{port}" for host, port in settings.redis_sentinel_hosts)
        return f"{settings.redis_sentinel_service} (Sentinel {hosts})"
    if settings.redis_url is not None:
        parts = urlsplit(settings.redis_url.get_secret_value())
        return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"
    return f"{settings.redis_host}:{settings.redis_port}"


class Connections:
    """The connections of one event loop, opened on first use."""

    def __init__(self, settings: LockSettings) -> None:
        """Prepare the clients.

        Raises:
            LockConfigurationError: ``REDIS_URL`` has a part that is unknown or does not fit.
        """
        self._settings = settings
        self.timeout = request_timeout(settings)
        # every Sentinel may be hung, and a Cluster may have to be asked for its nodes first
        steps = 2 + len(settings.redis_sentinel_hosts) + 2 * settings.redis_cluster
        self._deadline = self.timeout * steps
        self._permits = Permits(MAX_CONNECTIONS, self._deadline)
        self._permits_ahead = Permits(MAX_CONNECTIONS, self._deadline)
        self._finding_nodes = asyncio.Lock()
        self._outdated = False
        self.sentinels = self._ask_sentinels() if settings.redis_sentinel_hosts else None
        try:
            self._options = self._collect_options()
            self.client = self._connect()
        except (TypeError, ValueError, RedisClusterException) as error:
            raise LockConfigurationError(f"REDIS_URL for {address(settings)}: {error}") from None
        self.shared, self.shared_ahead = self._share(), self._share()

    @contextlib.asynccontextmanager
    async def use(self, *, ahead: bool = False) -> AsyncIterator[Redis | RedisCluster]:
        """A client for one request, within a deadline of our own, since redis-py's do not add up to one.

        `ahead` is for renewals: they have connections to themselves, since they must not wait until those
        who wait in vain, or leave, have been served.

        The deadline counts from when there is a connection for it: who waits for one does so for as long as
        others get answers.

        Raises:
            TimeoutError: the deadline passed, or nobody has got an answer for so long.
        """
        async with (self._permits_ahead if ahead else self._permits).one(), within(self._deadline):
            await self._find_nodes()
            yield self.client

    @contextlib.asynccontextmanager
    async def subscriber(self, hear: Callable[[Sequence[Any]], None]) -> AsyncIterator[Wire]:
        """A connection that only listens, closed at the end.

        In a Cluster any node will do, since messages are broadcast.
        """
        client = self.client
        if isinstance(client, RedisCluster):
            async with within(self._deadline):
                await self._find_nodes()
            node = client.get_random_node()
            client = self._one_server(str(node.host), int(node.port))
        async with within(self._deadline):
            wire = await Wire.open(_unconnected(client), hear)
        try:
            yield wire
        finally:
            wire.close()

    @contextlib.asynccontextmanager
    async def at(self, host: str, port: int) -> AsyncIterator[Redis]:
        """A client for the node that another node of a Cluster points to, closed at the end.

        The Cluster client need not know it: a node to which the first slot is being moved is not listed.
        """
        client = self._one_server(host, port)
        try:
            yield client
        finally:
            with contextlib.suppress(Exception):
                await client.aclose()

    def look_again(self) -> None:
        """Let a Cluster client learn its nodes anew before the next request: something has changed."""
        self._outdated = True

    @property
    def named_primary(self) -> Address | None:
        """Which server Sentinel named last; None if there is no Sentinel, or it was not asked yet."""
        return cast("Any", self.client).connection_pool.master_address if self.sentinels else None

    async def expect_primary(self, named: Address | None) -> None:
        """Make sure that the Sentinels, if there are any, still name this server.

        Raises:
            LockStoreUnavailable: they do not; the next request goes to the one that they name.
        """
        if self.sentinels is not None:
            try:
                await self.sentinels.expect(named)
            except LockStoreUnavailable:
                with contextlib.suppress(RedisError, OSError):
                    await cast("Any", self.client).connection_pool.get_master_address()
                raise

    async def close(self) -> None:
        """Close all connections."""
        for shared in (self.shared, self.shared_ahead):
            if shared is not None:
                await shared.close()
        for client in (self.client, *(self.sentinels.sentinel.sentinels if self.sentinels else ())):
            with contextlib.suppress(Exception):
                await (close_all(client) if isinstance(client, RedisCluster) else client.aclose())

    def are_closed(self) -> None:
        """Nothing is open any more, of which a Cluster client does not know: it would complain at its end."""
        if isinstance(self.client, RedisCluster):
            self.client._initialize = True  # noqa: SLF001 - what aclose() sets, which needs the event loop

    async def _find_nodes(self) -> None:
        """Let a Cluster client learn its nodes, when it has to.

        One at a time: several requests that begin with it at once close each other's connections.
        """
        if isinstance(self.client, RedisCluster):
            async with self._finding_nodes:
                await self.client.initialize()
                if self._outdated:
                    self._outdated = False
                    await self.client.nodes_manager.initialize()
            await drop_closed(self.client)

    def _share(self) -> SharedConnection | None:
        """One connection for what needs no confirmation, where there is one server that does not change."""
        if self.sentinels is not None or isinstance(self.client, RedisCluster):
            return None
        return SharedConnection(
            partial(_unconnected, self.client), timeout=self.timeout, patience=self._deadline
        )

    def _one_server(self, host: str, port: int) -> Redis:
        return with_our_connections(Redis(**{**self._options, "host": host, "port": port}))

    def _connect(self) -> Redis | RedisCluster:
        options = {**self._options, "max_connections": MAX_CONNECTIONS * 4}
        if self.sentinels is not None:
            return self.sentinels.primary(**options)
        if self._settings.redis_cluster:
            return with_our_connections(RedisCluster(**options, require_full_coverage=False))
        return with_our_connections(Redis(**options))

    def _ask_sentinels(self) -> Sentinels:
        hosts = self._settings.redis_sentinel_hosts
        options = {
            **self._common(),
            **self._tls(self._settings.redis_tls),
            "username": self._settings.redis_sentinel_username,
            "password": _reveal(self._settings.redis_sentinel_password),
        }
        sentinel = Sentinel(hosts, sentinel_kwargs=options)  # type: ignore[no-untyped-call]  # redis-py
        sentinel.sentinels = [
            with_our_connections(SentinelClient(host=host, port=port, **options)) for host, port in hosts
        ]
        return Sentinels(sentinel, self._settings.redis_sentinel_service, self.timeout)

    def _collect_options(self) -> dict[str, Any]:
        """What the URL says, then what is set on its own, then what we depend on."""
        settings = self._settings
        if settings.redis_url is None:
            options: dict[str, Any] = {"db": settings.redis_db}
            if self.sentinels is None:
                options |= {"host": settings.redis_host, "port": settings.redis_port}
        else:
            options = {"host": "localhost", "port": 6379, **parse_url(settings.redis_url.get_secret_value())}
        by_url = options.pop("connection_class", None) is SSLConnection
        if "path" in options:
            options["unix_socket_path"] = options.pop("path")
        login = {"username": settings.redis_username, "password": _reveal(settings.redis_password)}
        options |= {name: value for name, value in login.items() if value is not None}
        return {**options, **self._tls(by_url or settings.redis_tls), **self._common()}

    def _common(self) -> dict[str, Any]:
        return {
            "decode_responses": True,
            "socket_timeout": self.timeout,
            "socket_connect_timeout": self.timeout,
            "socket_keepalive": True,
            "health_check_interval": 0,
            "retry": Retry(NoBackoff(), 0),
            # with RESP3 redis-py also asks for maintenance news, and then no longer notices at checkout
            # that the server has closed a pooled connection
            "protocol": 2,
        }

    def _tls(self, on: bool) -> dict[str, Any]:
        if not on:
            return {}
        names = {"ssl_ca_certs": "ca", "ssl_certfile": "cert", "ssl_keyfile": "key"}
        paths = {ours: getattr(self._settings, f"redis_tls_{name}_file") for ours, name in names.items()}
        files = {name: str(path) for name, path in paths.items() if path}
        return {"ssl": True, "ssl_check_hostname": True, **files}


def _unconnected(client: Redis) -> AbstractConnection:
    connection: AbstractConnection = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    return connection


def _reveal(secret: Any) -> str | None:
    return None if secret is None else secret.get_secret_value()
