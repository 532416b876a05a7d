"""redis-py's connections, as they are used here: with our own time limits, and known while they are open."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from lock_interceptor.redis_store.open_sockets import opened
from lock_interceptor.redis_store.time_limits import within

Client = TypeVar("Client", Redis, RedisCluster)


class OurConnection(AbstractConnection):
    """``socket_timeout`` is the limit for connecting and for each answer.

    redis-py's own limits are reached as soon as the event loop goes on after it was blocked, although the
    answer lies in the socket. And the one for sending swallows cancellations before Python 3.12.
    """

    def __init__(self, *, socket_timeout: float, **options: Any) -> None:
        self._limit = socket_timeout
        super().__init__(**{**options, "socket_timeout": None, "socket_connect_timeout": None})

    async def _connect(self) -> None:
        async with within(self._limit):
            await super()._connect()  # type: ignore[no-untyped-call, safe-super]  # redis-py
        opened(self)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """See base class."""
        try:
            async with within(self._limit):
                return await super().read_response(*args, **options)
        except TimeoutError:
            raise RedisTimeoutError(f"Timeout reading from {self._host_error()}") from None

    async def disconnect(self, *args: Any, **options: Any) -> None:
        """See base class. Who does not say goodbye in time is not waited for."""
        if asyncio.current_task() is None:  # somebody cleans up, and waits for nothing
            await super().disconnect(*args, **options)
            return
        with contextlib.suppress(TimeoutError):
            async with within(self._limit):
                await super().disconnect(*args, **options)


class TcpConnection(OurConnection, Connection):
    """To a host and port."""


class TlsConnection(OurConnection, SSLConnection):
    """The same with TLS."""


class UnixConnection(OurConnection, UnixDomainSocketConnection):
    """To a socket in the file system."""


_OURS: dict[type[AbstractConnection], type[OurConnection]] = {
    Connection: TcpConnection,
    SSLConnection: TlsConnection,
    UnixDomainSocketConnection: UnixConnection,
}


def with_our_connections(client: Client) -> Client:
    """The client, which has not connected yet; from now on its connections are ours."""
    if isinstance(client, RedisCluster):
        options = client.connection_kwargs  # the one that nodes to come are made with
        options["connection_class"] = _OURS[options["connection_class"]]
        for node in client.nodes_manager.startup_nodes.values():
            node.connection_class = options["connection_class"]
    else:
        pool = client.connection_pool
        pool.connection_class = _OURS[pool.connection_class]
    return client
