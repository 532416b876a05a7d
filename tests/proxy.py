"""A TCP proxy that breaks connections in chosen ways, for tests of what a bad network does to a lock."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, Self
from weakref import WeakSet

from lock_interceptor.dev.process import HOST, free_ports

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with no time to linger


class _Way(Enum):
    REQUEST = "client to server"
    REPLY = "server to client"


class TcpProxy:
    """Passes what is sent to ``port`` on to the loopback port ``target``, and back, until told otherwise.

    It has a thread and an event loop of its own. Faults add up until ``heal``; each has taken effect when
    its method returns.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_ports(1)[0]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._listener: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self._writers: WeakSet[asyncio.StreamWriter] = WeakSet()
        self._swallowed: frozenset[_Way] = frozenset()
        self._delay_seconds = 0.0
        self._kill_on_next_reply = False

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        self.listen()
        return self

    def __exit__(self, *exc: object) -> None:
        """Reset every connection and end the thread."""
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def url(self, db: int = 0) -> str:
        """Return what a client is given in place of the server's address."""
        return f"redis://{HOST}:{self.port}/{db}"

    @property
    def connections(self) -> int:
        """How many connections there are through it."""
        return len(self._relays)

    def refuse(self) -> None:
        """Refuse new connections; those that exist go on."""
        self._do(self._stop_listening())

    def listen(self) -> None:
        """Accept connections again."""
        self._do(self._start_listening())

    def drop_replies(self) -> None:
        """Swallow what the server sends: commands are executed and nobody learns of it."""
        self._swallowed |= {_Way.REPLY}

    def drop_requests(self) -> None:
        """Swallow what clients send: commands are never executed."""
        self._swallowed |= {_Way.REQUEST}

    def black_hole(self) -> None:
        """Swallow everything, even the ends of connections: each side sees an open, silent one."""
        self._swallowed = frozenset(_Way)

    def delay(self, seconds: float) -> None:
        """Hold each piece of data back for so long, in either direction."""
        self._delay_seconds = seconds

    def kill_on_next_reply(self) -> None:
        """Reset the connection on which the next reply comes, instead of passing that reply on."""
        self._kill_on_next_reply = True

    def cut(self) -> None:
        """Reset (RST) every connection."""
        self._do(self._cut())

    def heal(self) -> None:
        """Pass everything on again, and listen. What was swallowed stays lost."""
        self._swallowed = frozenset()
        self._delay_seconds = 0.0
        self._kill_on_next_reply = False
        self.listen()

    def _do(self, change: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(change, self._loop).result(timeout=5)

    async def _start_listening(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accept, HOST, self.port)

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _cut(self) -> None:
        relays = list(self._relays)
        for relay in relays:
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)

    async def _close(self) -> None:
        await self._stop_listening()
        for _ in range(3):  # what is just being accepted has to become a task that has begun: it has a socket
            await asyncio.sleep(0)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        for writer in list(self._writers):  # one that has ended may still have something to send
            writer.transport.abort()
        await asyncio.sleep(0)  # that is done in the next turn of the loop

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)  # here, since a task that is cancelled before it begins does nothing
        relay = self._loop.create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end: Callable[[asyncio.StreamWriter], None] = _reset
        writers = [writer]
        try:
            replies, requests = await asyncio.open_connection(HOST, self.target)
            writers.append(requests)
            self._writers.add(requests)
            async with asyncio.TaskGroup() as both_ways:
                both_ways.create_task(self._pump(reader, requests, _Way.REQUEST))
                both_ways.create_task(self._pump(replies, writer, _Way.REPLY))
            end = asyncio.StreamWriter.close
        except* OSError:
            pass  # the other side is to see the same
        finally:
            for each in writers:
                end(each)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: _Way) -> None:
        while data := await self._read(source, way):
            await asyncio.sleep(self._delay_seconds)
            if way is _Way.REPLY and self._kill_on_next_reply:
                self._kill_on_next_reply = False
                raise ConnectionResetError
            if way not in self._swallowed:
                sink.write(data)
                await sink.drain()
        sink.write_eof()

    async def _read(self, source: asyncio.StreamReader, way: _Way) -> bytes:
        """Return the next data, or nothing at the end, which shows only while ``way`` is open."""
        try:
            return await source.read(65_536) or await self._open(way)
        except ConnectionError:
            await self._open(way)
            raise

    async def _open(self, way: _Way) -> bytes:
        while way in self._swallowed:  # noqa: ASYNC110 - an Event per way would not be simpler
            await asyncio.sleep(0.005)
        return b""


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
