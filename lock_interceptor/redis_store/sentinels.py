"""What the Sentinels say of a service: which server is its primary, and how many replicas there are."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection
from redis.exceptions import RedisError

from lock_interceptor.errors import LockStoreUnavailable
from lock_interceptor.redis_store.client_connections import OurConnection
from lock_interceptor.redis_store.time_limits import within

Address = tuple[str, int]


class SentinelClient(Redis):
    """Errors of the Sentinel class quote its clients, which in most of redis-py show their passwords."""

    def __repr__(self) -> str:
        options = self.connection_pool.connection_kwargs
        return f"{options['host']}:{options['port']}"


class PrimaryConnection(OurConnection, SentinelManagedConnection):
    """Goes to the primary that Sentinel named last whenever it is taken from the pool.

    When another one is named, redis-py closes the idle connections. One that is in use just then would go
    back into the pool and stay with the old primary, for as long as that answers.
    """

    async def connect(self) -> None:
        """Make sure that it is connected, and to that one."""
        named = self.connection_pool.master_address
        if self.is_connected and (self.host, self.port) != named:
            await self.disconnect()
        await super().connect()  # type: ignore[no-untyped-call]  # redis-py


class PrimaryTlsConnection(PrimaryConnection, SentinelManagedSSLConnection):
    """The same with TLS."""


class Sentinels:
    """All Sentinels of one service; each is asked, for any of them may be the one that does not know yet."""

    def __init__(self, sentinel: Sentinel, service: str, timeout: float) -> None:
        self.sentinel = sentinel
        self._service = service
        self._timeout = timeout

    def primary(self, **options: Any) -> Redis:
        """A client for the primary."""
        kind = PrimaryTlsConnection if options.get("ssl") else PrimaryConnection
        client: Redis = self.sentinel.master_for(self._service, connection_class=kind, **options)
        return client

    async def count_replicas(self) -> int | None:
        """How many replicas there are, those that are down too; None if nobody tells now."""
        # one that began anew knows of those only that are connected now
        return max((int(state["num-slaves"]) for state in await self._states()), default=None)

    async def expect(self, named: Address | None) -> None:
        """Make sure that this is still the primary; without a name, that there is one.

        One that was replaced on demand goes on as a primary for ten seconds, and one that is cut off for as
        long as it is.

        Raises:
            LockStoreUnavailable: a Sentinel names another one, or none answers.
        """
        primaries = {(str(state["ip"]), int(state["port"])) for state in await self._states()}
        if not primaries:
            raise LockStoreUnavailable("no replica confirms anything, and no Sentinel names the primary")
        if named is not None and primaries != {named}:
            raise LockStoreUnavailable(f"{named[0]}:{named[1]} is no longer the primary for all Sentinels")

    async def _states(self) -> list[dict[str, Any]]:
        """What each Sentinel that answers says of the service."""
        states = await asyncio.gather(*map(self._ask, self.sentinel.sentinels))
        return [state for state in states if state is not None]

    async def _ask(self, client: Redis) -> dict[str, Any] | None:
        with contextlib.suppress(RedisError, OSError):
            async with within(self._timeout):
                masters = await cast("Any", client.sentinel_masters())  # redis-py finds the primary by it too
                return cast("dict[str, Any] | None", masters.get(self._service))
        return None
