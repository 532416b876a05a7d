"""One connection that all requests of an event loop share: sent together, and answered in order."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from lock_interceptor.redis_store.time_limits import Countdown, within
from lock_interceptor.redis_store.wire import Wire, Words, pack, unmarked


class SharedConnection:
    """Opened on first use, and again after it was lost."""

    def __init__(self, make: Callable[[], AbstractConnection], *, timeout: float, patience: float) -> None:
        """Prepare; nothing is connected before the first request.

        Args:
            make: gives a connection of redis-py's that is not connected yet.
            timeout: seconds in which the server has to say something while it owes an answer.
            patience: seconds to wait for a connection.
        """
        self._make = make
        self._timeout = timeout
        self._patience = patience
        self._opening = asyncio.Lock()
        self._line: _Line | None = None

    async def request(self, words: Words, mark: int | None = None) -> Any:
        """Send a command, and return its answer.

        A cancelled request leaves the connection as it is. What was sent may still be executed, but before
        anything that is sent after it.

        Args:
            words: the command.
            mark: what the answer has to bring with it, see `scripts.marked`; None for one that has none.

        Raises:
            RedisError: the server's answer, or the connection was lost, and it may have been executed.
            OSError, TimeoutError: there is no connection.
        """
        line = self._line
        if line is None or line.wire.lost.done():
            async with within(self._patience), self._opening:
                line = self._line
                if line is None or line.wire.lost.done():
                    line = self._line = await _Line.open(self._make(), self._timeout)
        return await line.request(words, mark)

    def gather(self) -> None:
        """Send what is asked for until the end of the next turn of the event loop together."""
        if self._line is not None:
            self._line.gather()

    async def close(self) -> None:
        """Close the connection; who still waits for an answer gets an error."""
        async with self._opening:  # one that is being opened is closed, too
            if self._line is not None:
                self._line.wire.close()


@dataclass(frozen=True, slots=True)
class _Request:
    """One that is on its way."""

    mark: int | None
    answer: asyncio.Future[Any]


class _Line:
    """Requests on their way and back."""

    wire: Wire

    def __init__(self, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._gathering = False
        self._unsent: list[bytes] = []
        self._unanswered: deque[_Request] = deque()
        # runs while something was sent that is not answered, and from the beginning with each answer
        self._silence = Countdown(timeout, self._give_up)

    @classmethod
    async def open(cls, connection: AbstractConnection, timeout: float) -> _Line:
        line = cls(timeout)
        line.wire = await Wire.open(connection, line._hear)
        line.wire.lost.add_done_callback(line._fail)
        return line

    def request(self, words: Words, mark: int | None) -> asyncio.Future[Any]:
        if self._unanswered:
            self.gather()  # others are waiting for the network, too
        request = _Request(mark, self._loop.create_future())
        self._unanswered.append(request)
        self._unsent.append(pack(words))
        if not self._gathering:
            self._send()
        return request.answer

    def gather(self) -> None:
        if not self._gathering:
            self._gathering = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        unsent, self._unsent, self._gathering = self._unsent, [], False
        if unsent and len(unsent) == len(self._unanswered):
            self._silence.start()  # nothing else is on its way
        self.wire.write(b"".join(unsent))

    def _hear(self, answers: Sequence[Any]) -> None:
        if len(answers) > len(self._unanswered):
            raise RedisConnectionError("more answers than requests")
        requests = list(itertools.islice(self._unanswered, len(answers)))
        said = [unmarked(answer, request.mark) for request, answer in zip(requests, answers, strict=True)]
        # the last first: where a release and the next one's request were sent together, the next body begins
        # before the attempt that is done goes on
        for request, answer in zip(reversed(requests), reversed(said), strict=True):
            self._unanswered.popleft()
            _settle(request.answer, answer)
        if len(self._unanswered) > len(self._unsent):
            self._silence.start()
        else:
            self._silence.stop()

    def _give_up(self) -> None:
        self.wire.close(RedisTimeoutError("Timeout reading from socket"))

    def _fail(self, lost: asyncio.Future[Exception]) -> None:
        self._silence.cancel()
        while self._unanswered:
            # one for each, since whoever raises an error adds to it
            _settle(self._unanswered.popleft().answer, copy(lost.result()))


def _settle(answer: asyncio.Future[Any], said: Any) -> None:
    if answer.done():
        return  # who asked was cancelled
    if isinstance(said, Exception):
        answer.set_exception(said)
    else:
        answer.set_result(said)
