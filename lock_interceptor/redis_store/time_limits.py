"""Time limits that count the time for which the event loop runs.

A timer is late when something blocks the loop, and the answer may lie in the socket by then, unread. So a
limit is counted in steps: between two of them the loop has looked at its sockets, and a step that comes late,
by whatever time, is no more than one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

STEPS = 8


class Countdown:
    """Calls `over` when so many seconds have passed since it was started, or up to an eighth more."""

    def __init__(self, seconds: float, over: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._step = seconds / STEPS
        self._over = over
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Count from now; one that is counting begins again."""
        if self._timer is None:
            self._left = STEPS
            self._timer = self._loop.call_later(self._step, self._tick)
        else:
            self._left = STEPS + 1  # the step that has begun is not a whole one

    def stop(self) -> None:
        """Do not call any more. The timer is left to end by itself, which costs less than to end it."""
        self._left = 0

    def cancel(self) -> None:
        """The same for one that is not needed again: nothing is left of it."""
        self._left = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        if self._left == 0:
            return
        self._left -= 1
        if self._left == 0:
            self._over()
        else:
            self._timer = self._loop.call_later(self._step, self._tick)


class within:  # noqa: N801 - it is used like `asyncio.timeout`
    """As `asyncio.timeout`, but counted in steps."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        """See `asyncio.timeout`."""
        await self._limit.__aenter__()
        self._countdown = Countdown(self._seconds, lambda: self._limit.reschedule(0))
        self._countdown.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """See `asyncio.timeout`.

        Raises:
            TimeoutError: the time is over.
        """
        self._countdown.cancel()
        await self._limit.__aexit__(kind, error, traceback)
