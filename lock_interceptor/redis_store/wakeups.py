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

from lock_interceptor.redis_store.connection import Connections

SILENCE = 10.0
"""Seconds without any message after which the connection is tried with a ping, and closed when idle."""
ANSWER = 1.0
MAX_BACKOFF = 1.0

log = structlog.get_logger("lock_interceptor")


class Wakeups:
    """One subscriber connection, open while somebody waits."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._events: dict[str, dict[str, asyncio.Event]] = {}
        self._pubsub: PubSub | None = None
        self._task: asyncio.Task[None] | None = None

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

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _tell(self, command: Literal["subscribe", "unsubscribe"], channel: str) -> None:
        """A lost connection is noticed and mended by the reading task, which subscribes to all again."""
        if self._pubsub is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(ANSWER):
                    await getattr(self._pubsub, command)(channel)

    async def _run(self) -> None:
        backoff = 0.1
        while self._events:
            try:
                self._pubsub = await self._connections.pubsub()
                async with asyncio.timeout(MAX_BACKOFF * 2):
                    await self._pubsub.subscribe(*self._events)
                backoff = 0.1
                await self._read(self._pubsub)
            except Exception as error:
                log.debug("lock.wakeups_interrupted", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, MAX_BACKOFF)
            finally:
                broken, self._pubsub = self._pubsub, None
                if broken is not None:
                    with contextlib.suppress(Exception):
                        await broken.aclose()  # type: ignore[no-untyped-call]  # redis-py has no types here

    async def _read(self, pubsub: PubSub) -> None:
        while True:
            message = await self._next(pubsub, SILENCE)
            if message is None:
                if not self._events:
                    return
                await pubsub.ping()
                message = await self._next(pubsub, ANSWER)
                if message is None:
                    raise TimeoutError("the subscriber connection does not answer")
            waiters = self._events.get(message["channel"] or "", {})
            if message["type"] == "message":
                if event := waiters.get(message["data"]):
                    event.set()
            elif message["type"] == "subscribe":
                for event in waiters.values():
                    event.set()

    async def _next(self, pubsub: PubSub, timeout: float) -> dict[str, str] | None:
        message: dict[str, str] | None = await pubsub.get_message(
            ignore_subscribe_messages=False, timeout=timeout
        )
        return message
