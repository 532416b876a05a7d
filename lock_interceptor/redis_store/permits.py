"""So many requests at a time, on connections of a pool; the others wait for as long as anybody is served."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

from redis.exceptions import ResponseError

from lock_interceptor.redis_store.time_limits import Countdown


class Permits:
    """First come, first served. For one event loop."""

    def __init__(self, number: int, patience: float) -> None:
        """Prepare.

        Args:
            number: how many there are.
            patience: seconds in which somebody has to be served, or else all who wait give up: a queue is no
                reason to fail, and a server that answers nobody is one.
        """
        self._free = number
        self._patience = patience
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._silence: Countdown | None = None

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A permit while entered.

        Raises:
            TimeoutError: nobody has been served for too long.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait()
        try:
            yield
        except ResponseError:
            self._served()  # an answer, too
            raise
        except BaseException:
            self._pass_on()
            raise
        else:
            self._served()

    async def _wait(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._silence is None:
            self._silence = Countdown(self._patience, self._give_up)
        if not self._waiting:
            self._silence.start()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on()  # cancelled when its turn had come
            raise

    def _served(self) -> None:
        if self._silence is not None and self._waiting:
            self._silence.start()
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        else:
            self._free += 1
        if self._silence is not None and not self._waiting:
            self._silence.stop()

    def _give_up(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(TimeoutError("no request got an answer"))
