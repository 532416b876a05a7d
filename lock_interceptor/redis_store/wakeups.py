"""Wake-ups by pub/sub, for one event loop: who waits is told when asking again may pay.

A subscriber can go deaf for good without any error (after a failover, for example), so nothing may ever
depend on a message. Still, silence is looked into: a ping that is not answered ends the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Literal

import structlog
from redis.asyncio.client import PubSub

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.redis_store.connection import Connections, cancellations
from lock_interceptor.redis_store.errors import translated

SILENCE = 15.0
"""Seconds without any message after which the connection is tried with a ping, and closed when idle."""
ANSWER = 1.0
MAX_BACKOFF = 1.0
REFUSED_BACKOFF = 30.0
"""Seconds before a server that refuses us for good is asked again: polling goes on meanwhile."""

log = structlog.get_logger("lock_interceptor")


class Wakeups:
    """One subscriber connection, open while somebody waits."""

    def __init__(self, connections: Connections, where: str) -> None:
        """`where` names the server for messages."""
        self._connections = connections
        self._where = where
        self._events: dict[str, dict[str, asyncio.Event]] = {}
        self._pubsub: PubSub | None = None
        self._task: asyncio.Task[None] | None = None
        self._warned = False

    @contextlib.asynccontextmanager
    async def listen(self, channel: str, waiter: str) -> AsyncIterator[asyncio.Event]:
        """An event that is set when `waiter` is called on `channel`, and after each new subscription."""
        event = asyncio.Event()
        waiters = self._events.setdefault(channel, {})
        waiters[waiter] = event
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run(), name="lock_interceptor.wakeups")
            elif len(waiters) == 1:
                await self._tell("subscribe", channel)
            else:
                event.set()  # subscribed already: a call may have come between asking and listening
            yield event
        finally:
            if waiters.get(waiter) is event:
                del waiters[waiter]
            if not waiters and self._events.get(channel) is waiters:
                del self._events[channel]
                await self._tell("unsubscribe", channel)

    async def try_out(self, channel: str) -> None:
        """Subscribe and publish once, to find out whether the server lets us.

        Raises:
            TimeoutError: no answer.
            RedisError: it does not.
        """
        async with asyncio.timeout(ANSWER * 3), self._connections.subscriber() as pubsub:
            await pubsub.subscribe(channel)
            while (message := await _next(pubsub, ANSWER)) is None or message["type"] != "subscribe":
                pass
            async with self._connections.use() as redis:
                await redis.execute_command("PUBLISH", channel, "")

    async def close(self) -> None:
        """Stop listening."""
        while self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=ANSWER * 2)

    async def _tell(self, command: Literal["subscribe", "unsubscribe"], channel: str) -> None:
        """A lost connection is noticed and mended by the reading task, which subscribes to all again."""
        pubsub = self._pubsub
        # not connected, it would connect from here, at the same time as the reading task
        if pubsub is not None and pubsub.connection is not None and pubsub.connection.is_connected:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(ANSWER):
                    await getattr(pubsub, command)(channel)

    async def _run(self) -> None:
        backoff = 0.1
        while self._events and not cancellations():
            try:
                with translated(self._where):
                    async with self._connections.subscriber() as pubsub:
                        try:
                            await self._subscribe(pubsub)
                            backoff = 0.1
                            await self._read(pubsub)
                        finally:
                            self._pubsub = None  # used after its end it would connect again
            except Exception as error:
                delay, backoff = backoff, min(backoff * 2, MAX_BACKOFF)
                if isinstance(error, LockConfigurationError):
                    delay = REFUSED_BACKOFF
                    self._warn(error)
                log.debug("lock.wakeups_interrupted", error=str(error))
                await asyncio.sleep(delay)

    def _warn(self, error: LockConfigurationError) -> None:
        if not self._warned:
            self._warned = True
            log.warning("lock.wakeups_refused", error=str(error), effect="waiters find out by polling only")

    async def _subscribe(self, pubsub: PubSub) -> None:
        """Subscribe to all channels; others may use the subscriber only once it is connected."""
        async with asyncio.timeout(MAX_BACKOFF * 2):
            known: set[str] = set()
            while new := set(self._events) - known:
                await pubsub.subscribe(*new)
                known |= new
            self._pubsub = pubsub

    async def _read(self, pubsub: PubSub) -> None:
        while pubsub.connection is not None and not cancellations():
            message = await _next(pubsub, SILENCE)
            if message is None:
                if not self._events:
                    return
                await pubsub.ping()
                message = await _next(pubsub, ANSWER)
                if message is None:
                    raise TimeoutError("the subscriber connection does not answer")
            waiters = self._events.get(message["channel"] or "", {})
            if message["type"] == "message":
                if event := waiters.get(message["data"]):
                    event.set()
            elif message["type"] == "subscribe":
                for event in waiters.values():
                    event.set()


async def _next(pubsub: PubSub, timeout: float) -> dict[str, str] | None:
    message: dict[str, str] | None = await pubsub.get_message(
        ignore_subscribe_messages=False, timeout=timeout
    )
    return message
