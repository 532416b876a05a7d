"""Wake-ups by pub/sub, for one event loop: who waits is told when asking again may pay.

A subscriber can go deaf for good without any error (after a failover, for example), so nothing may ever
depend on a message. Still, silence is looked into: a ping that is not answered ends the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from lock_interceptor import telemetry
from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.redis_store.connection import Connections
from lock_interceptor.redis_store.errors import translated
from lock_interceptor.redis_store.time_limits import within
from lock_interceptor.redis_store.wire import Wire, pack

SILENCE = 15.0
"""Seconds without any message after which the connection is tried with a ping, and closed when idle."""
ANSWER = 1.0
MAX_BACKOFF = 1.0
REFUSED_BACKOFF = 30.0
"""Seconds before a server that refuses us for good is asked again: polling goes on meanwhile."""


@dataclass(slots=True)
class _Listener:
    """One waiter."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    turn: float = math.inf
    """Estimated number of the wake-up for this waiter; infinite if its place is unknown."""


_TURN = attrgetter("turn")


@dataclass(slots=True)
class _Line:
    """Those who wait here for one lock."""

    listeners: dict[str, _Listener] = field(default_factory=dict)
    calls: int = 0
    """How many waiters were called, here or anywhere: so far has the line moved."""
    called: str = ""
    """Who was, as the last one."""

    def hear(self, waiter: str) -> None:
        """Somebody is called, and perhaps once more, since whoever finds a free slot does it."""
        if waiter != self.called:
            self.calls, self.called = self.calls + 1, waiter
        if waiter in self.listeners:
            self.listeners[waiter].event.set()


class Wakeups:
    """One subscriber connection, open while somebody waits."""

    def __init__(self, connections: Connections, where: str) -> None:
        """`where` names the server for messages."""
        self._connections = connections
        self._where = where
        self._lines: dict[str, _Line] = {}
        self._wire: Wire | None = None
        self._heard = 0
        self._task: asyncio.Task[None] | None = None
        self._warned = False

    @contextlib.asynccontextmanager
    async def listen(self, channel: str, waiter: str) -> AsyncIterator[asyncio.Event]:
        """An event that is set when `waiter` is called on `channel`, and after each new subscription."""
        line = self._lines.setdefault(channel, _Line())
        listener = line.listeners[waiter] = _Listener()
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run(), name="lock_interceptor.wakeups")
            elif len(line.listeners) == 1:
                self._tell("SUBSCRIBE", channel)
            else:
                listener.event.set()  # subscribed already: a call may have come between asking and listening
            yield listener.event
        finally:
            if line.listeners.get(waiter) is listener:
                del line.listeners[waiter]
            if not line.listeners and self._lines.get(channel) is line:
                del self._lines[channel]
                self._tell("UNSUBSCRIBE", channel)

    def calls(self, channel: str) -> int:
        """How far the line has moved, as a number to give to `told`."""
        line = self._lines.get(channel)
        return line.calls if line is not None else 0

    def told(self, channel: str, waiter: str, place: int, calls: int) -> None:
        """Take note of the place in line that the server has told a waiter.

        The number of calls has to be the one from before it was asked: what came meanwhile may have been
        later than the answer. Rather is somebody called too early than not at all.
        """
        line = self._lines.get(channel)
        if line is not None and waiter in line.listeners:
            line.listeners[waiter].turn = calls + place

    def call_next(self, channel: str) -> bool:
        """Call who listens here if it seems to be the next in line, before the server does.

        Its request then goes right behind the release that is about to be sent, and the lock is handed on
        in one round trip. If the next one is somewhere else after all, it was one request in vain.
        Returns whether somebody was called.
        """
        line = self._lines.get(channel)
        if line is None or not line.listeners:
            return False
        first = min(line.listeners.values(), key=_TURN)
        if first.turn > line.calls + 1:
            return False
        first.event.set()
        return True

    async def try_out(self, channel: str) -> None:
        """Subscribe and publish once, to find out whether the server lets us.

        Raises:
            TimeoutError: no answer.
            RedisError: it does not.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def hear(messages: Sequence[Any]) -> None:
            if not answer.done():
                answer.set_result(messages[0])

        async with within(ANSWER * 3), self._connections.subscriber(hear) as wire:
            wire.write(pack(("SUBSCRIBE", channel)))
            await asyncio.wait({answer, wire.lost}, return_when=asyncio.FIRST_COMPLETED)
            said = (answer if answer.done() else wire.lost).result()
            if isinstance(said, Exception):
                raise said
            async with self._connections.use() as redis:
                await redis.execute_command("PUBLISH", channel, "")

    async def close(self) -> None:
        """Stop listening."""
        while self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=ANSWER * 2)

    def _tell(self, command: Literal["SUBSCRIBE", "UNSUBSCRIBE"], *channels: str) -> None:
        """While there is no connection nobody need be told: a new one subscribes to all."""
        if self._wire is not None:
            self._wire.write(pack((command, *channels)))

    async def _run(self) -> None:
        backoff = 0.1
        while self._lines:
            try:
                with translated(self._where):
                    async with self._connections.subscriber(self._hear) as wire:
                        self._wire = wire
                        try:
                            if self._lines:
                                self._tell("SUBSCRIBE", *self._lines)
                            backoff = 0.1
                            await self._watch(wire)
                        finally:
                            self._wire = None
            except Exception as error:
                delay, backoff = backoff, min(backoff * 2, MAX_BACKOFF)
                if isinstance(error, LockConfigurationError):
                    delay = REFUSED_BACKOFF
                    self._warn(error)
                telemetry.wakeups_interrupted(error)
                await asyncio.sleep(delay)

    def _warn(self, error: LockConfigurationError) -> None:
        if not self._warned:
            self._warned = True
            telemetry.wakeups_refused(error)

    def _hear(self, messages: Sequence[Any]) -> None:
        self._heard += 1
        for message in messages:
            if isinstance(message, Exception):
                if self._wire is not None:
                    self._wire.close(message)  # it does not let us
                return
            kind, channel, said = (*message, None)[:3]
            line = self._lines.get(channel or "")
            if line is not None and kind == "message":
                line.hear(said)
            elif line is not None and kind == "subscribe":
                for listener in line.listeners.values():
                    listener.event.set()

    async def _watch(self, wire: Wire) -> None:
        """Return when nobody listens any more.

        Raises:
            Exception: the connection is lost.
        """
        while True:
            if not await self._silent(wire, SILENCE):
                continue
            if not self._lines:
                return
            wire.write(pack(("PING",)))
            if await self._silent(wire, ANSWER):
                raise TimeoutError("the subscriber connection does not answer")

    async def _silent(self, wire: Wire, seconds: float) -> bool:
        """Whether nothing is heard for so long."""
        heard = self._heard
        await asyncio.wait({wire.lost}, timeout=seconds)
        if wire.lost.done():
            raise wire.lost.result()
        return self._heard == heard
