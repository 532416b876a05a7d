"""Connections to Redis for one event loop: one server, Sentinel or Cluster, as `LockSettings` say.

redis-py's own retries are off everywhere: it would send a script a second time by itself, and a hung
Sentinel would take a minute. Who calls knows how much time there is, and repeats with the same owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any, cast
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.settings import LockSettings

MAX_CONNECTIONS = 16
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
        self._settings = settings
        self._timeout = request_timeout(settings)
        self._limit = asyncio.Semaphore(MAX_CONNECTIONS)
        self._pubsub_client: Redis | None = None
        self._client: Redis | RedisCluster = self._connect()

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[Redis | RedisCluster]:
        """A client for one request, within a deadline of our own, since redis-py's do not add up to one.

        Raises:
            TimeoutError: the deadline passed.
        """
        async with (
            self._limit,
            asyncio.timeout(self._timeout * (2 + len(self._settings.redis_sentinel_hosts))),
        ):
            yield self._client

    async def pubsub(self) -> PubSub:
        """A new subscriber. In a Cluster any node will do, since messages are broadcast."""
        if isinstance(self._client, RedisCluster):
            if self._pubsub_client is not None:
                await self._pubsub_client.aclose()
            async with asyncio.timeout(self._timeout * 2):
                await self._client.initialize()
            node = self._client.get_random_node()
            self._pubsub_client = Redis(
                host=str(node.host), port=int(node.port), **self._login(), **self._tls()
            )
        elif self._pubsub_client is None:
            self._pubsub_client = cast("Redis", self._connect())
        return self._pubsub_client.pubsub()

    async def close(self) -> None:
        """Close all connections."""
        for client in (self._pubsub_client, self._client):
            if client is not None:
                with contextlib.suppress(Exception):
                    await client.aclose()

    def _connect(self) -> Redis | RedisCluster:
        settings = self._settings
        if settings.redis_sentinel_hosts:
            return self._connect_sentinel()
        if settings.redis_url is not None:
            url = settings.redis_url.get_secret_value()
            tls = self._tls_files() if url.startswith("rediss:") else {}
            options = {**self._options(), **tls, **self._given_login()}
            if settings.redis_cluster:
                return RedisCluster.from_url(url, **options)
            return Redis.from_url(url, max_connections=MAX_CONNECTIONS * 2, **options)
        options = {"host": settings.redis_host, "port": settings.redis_port, **self._login(), **self._tls()}
        if settings.redis_cluster:
            return RedisCluster(**options)
        return Redis(db=settings.redis_db, max_connections=MAX_CONNECTIONS * 2, **options)

    def _connect_sentinel(self) -> Redis:
        settings = self._settings
        sentinels: Any = Sentinel(  # type: ignore[no-untyped-call]  # redis-py has no types here
            settings.redis_sentinel_hosts,
            sentinel_kwargs={
                **self._options(),
                **self._tls(),
                "username": settings.redis_sentinel_username,
                "password": _reveal(settings.redis_sentinel_password),
            },
        )
        primary: Redis = sentinels.master_for(
            settings.redis_sentinel_service,
            db=settings.redis_db,
            max_connections=MAX_CONNECTIONS * 2,
            **self._login(),
            **self._tls(),
        )
        return primary

    def _options(self) -> dict[str, Any]:
        return {
            "decode_responses": True,
            "socket_timeout": self._timeout,
            "socket_connect_timeout": self._timeout,
            "socket_keepalive": True,
            "health_check_interval": 0,
            "retry": Retry(NoBackoff(), 0),
        }

    def _given_login(self) -> dict[str, Any]:
        """User and password set on their own go before those in the URL."""
        login = {
            "username": self._settings.redis_username,
            "password": _reveal(self._settings.redis_password),
        }
        return {name: value for name, value in login.items() if value is not None}

    def _login(self) -> dict[str, Any]:
        login = self._given_login()
        if self._settings.redis_url is not None:
            parsed = parse_url(self._settings.redis_url.get_secret_value())
            login = {name: parsed[name] for name in ("username", "password") if name in parsed} | login
        return {**self._options(), **login}

    def _tls(self) -> dict[str, Any]:
        url = self._settings.redis_url
        by_url = url is not None and url.get_secret_value().startswith("rediss:")
        return {"ssl": True, **self._tls_files()} if self._settings.redis_tls or by_url else {}

    def _tls_files(self) -> dict[str, Any]:
        names = {"ssl_ca_certs": "ca", "ssl_certfile": "cert", "ssl_keyfile": "key"}
        paths = {ours: getattr(self._settings, f"redis_tls_{name}_file") for ours, name in names.items()}
        return {"ssl_check_hostname": True, **{name: str(path) for name, path in paths.items() if path}}


def _reveal(secret: Any) -> str | None:
    return None if secret is None else secret.get_secret_value()


async def check_tls_agrees(settings: LockSettings) -> None:
    """Tell "TLS on one side only" from "no answer", which redis-py reports alike.

    Raises:
        LockConfigurationError: the server speaks TLS and the settings do not, or the other way round.
    """
    url = settings.redis_url.get_secret_value() if settings.redis_url is not None else ""
    if url.startswith("unix:"):
        return
    parts = urlsplit(url)
    hosts = list(settings.redis_sentinel_hosts) or [
        (parts.hostname or "localhost", parts.port or 6379)
        if url
        else (settings.redis_host, settings.redis_port)
    ]
    expects_tls = settings.redis_tls or url.startswith("rediss:")
    for host, port in hosts:
        speaks_tls = await _speaks_tls(host, port, request_timeout(settings))
        if speaks_tls is not None and speaks_tls != expects_tls:
            wanted, remedy = (
                ("TLS", "REDIS_TLS=true or rediss://")
                if speaks_tls
                else ("plain", "REDIS_TLS=false or redis://")
            )
            raise LockConfigurationError(f"the server at {host}:{port} speaks {wanted} Redis: set {remedy}")


async def _speaks_tls(host: str, port: int, timeout: float) -> bool | None:
    """Whether the server speaks TLS; None if that cannot be told."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: only whether a handshake begins is of interest
    for tls in (None, context):
        writer = None
        with contextlib.suppress(OSError, TimeoutError, ssl.SSLError, ValueError):
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(host, port, ssl=tls)
                if tls is not None:
                    return True
                writer.write(b"PING\r\n")
                if (await reader.read(1)) in (b"+", b"-"):
                    return False
        if writer is not None:
            writer.close()
    return None
