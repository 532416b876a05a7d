"""A connection to Redis that carries words out and answers in, and nothing else.

redis-py makes it, with all that its options say. But it reads through a stream, and writes through a task,
within a timeout each, which takes several times as long as the network: so its reader is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from lock_interceptor.redis_store.open_sockets import close_transport

Words = tuple[str | int, ...]
_INCOMPLETE = object()


def pack(words: Words) -> bytes:
    """A command as the server reads it."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # a tuple of any of these
    return packed


def unmarked(answer: Any, mark: int | None) -> Any:
    """The answer of a script without its mark; errors have none.

    Raises:
        RedisConnectionError: it is the answer to something else.
    """
    if mark is None or isinstance(answer, Exception):
        return answer
    if not isinstance(answer, list) or len(answer) != 2 or answer[0] != str(mark):
        raise RedisConnectionError("an answer got lost, or a request")
    return answer[1]


class Wire(asyncio.Protocol):
    """An open connection."""

    def __init__(self, connection: AbstractConnection, hear: Callable[[Sequence[Any]], None]) -> None:
        """Take over the connection.

        Args:
            connection: connected, and idle.
            hear: is called with the answers that have come, in order; exceptions among them are not raised.
                What it raises itself closes the connection.

        Raises:
            RedisError: the server has closed it already, and may have said why.
        """
        stream, writer = connection._reader, connection._writer  # noqa: SLF001 - there is no other way to them
        if stream is None or writer is None:
            raise RedisConnectionError("Connection closed by server.")
        self.lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """Done when the connection is lost or closed, with the reason."""
        self._connection = connection
        self._hear = hear
        self._parser = hiredis.Reader(
            encoding="utf-8",
            replyError=connection._parser.parse_error,  # noqa: SLF001 - an error's class, by its words
            notEnoughData=_INCOMPLETE,
        )
        self._transport: Any = writer.transport
        self._transport.set_protocol(self)
        heard: bytearray = stream._buffer  # type: ignore[attr-defined]  # noqa: SLF001 - as above
        if heard or stream.at_eof():
            self._parser.feed(bytes(heard))
            said = self._parser.gets()
            self.close()
            raise (
                said if isinstance(said, RedisError) else RedisConnectionError("Connection closed by server.")
            )

    @classmethod
    async def open(cls, connection: AbstractConnection, hear: Callable[[Sequence[Any]], None]) -> Wire:
        """Connect and take over; see `__init__`."""
        await connection.connect()  # type: ignore[no-untyped-call]  # redis-py
        return cls(connection, hear)

    def write(self, packed: bytes) -> None:
        """Send commands; nothing happens on a connection that is lost."""
        if not self.lost.done():
            self._transport.write(packed)

    def close(self, reason: Exception | None = None) -> None:
        """Close it at once."""
        if not self.lost.done():
            with contextlib.suppress(
                RuntimeError
            ):  # the event loop is closed, and with it whoever waits for this
                self.lost.set_result(reason or RedisConnectionError("Connection closed"))
            close_transport(self._transport)
            self._connection._close()  # type: ignore[no-untyped-call]  # noqa: SLF001 - it complains else

    def data_received(self, data: bytes) -> None:
        """See base class."""
        try:
            self._parser.feed(data)
            answers = []
            while (answer := self._parser.gets()) is not _INCOMPLETE:
                answers.append(answer)
            if answers and not self.lost.done():
                self._hear(answers)
        except RedisError as error:
            self.close(error)
        except Exception as error:
            self.close(RedisConnectionError(f"not an answer: {error!r}"))

    def connection_lost(self, error: Exception | None) -> None:
        """See base class."""
        self.close(RedisConnectionError(f"Connection closed by server. {error or ''}".rstrip()))
