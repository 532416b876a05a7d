"""What a store has in each event loop, and how it goes with that loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from lock_interceptor.redis_store.connection import Connections, address
from lock_interceptor.redis_store.open_sockets import call_in_children, close_all_of
from lock_interceptor.redis_store.wakeups import Wakeups
from lock_interceptor.settings import LockSettings


class InLoop:
    """What the store has in one event loop."""

    def __init__(self, settings: LockSettings) -> None:
        self.connections = Connections(settings)
        self.wakeups = Wakeups(self.connections, address(settings))
        self.looking_at_tls = False
        self.end: AsyncGenerator[None, None] | None = None
        """Closes everything when it is closed, which `asyncio.run` does at the end of the loop."""

    async def close(self) -> None:
        """Close everything."""
        await self.wakeups.close()
        await self.connections.close()


class Loops:
    """The event loops in which a store is used."""

    def __init__(self, settings: LockSettings) -> None:
        self._settings = settings
        self._by_loop: dict[asyncio.AbstractEventLoop, InLoop] = {}
        call_in_children(self._forget)

    def __len__(self) -> int:
        return len(self._by_loop)

    def here(self) -> InLoop:
        """What there is in the running loop.

        Raises:
            LockConfigurationError: ``REDIS_URL`` has a part that is unknown or does not fit.
        """
        loop = asyncio.get_running_loop()
        here = self._by_loop.get(loop)
        if here is None:
            self._drop_closed()
            here = InLoop(self._settings)
            self._by_loop[loop] = here
            here.end = self._until_the_end(loop, here)
            with contextlib.suppress(StopIteration):  # that is how its first step ends
                here.end.asend(None).send(None)  # from now on the loop knows of it
        return here

    async def close_here(self) -> None:
        """Close what there is in the running loop."""
        here = self._by_loop.get(asyncio.get_running_loop())
        if here is not None and here.end is not None:
            await here.end.aclose()

    async def _until_the_end(
        self, loop: asyncio.AbstractEventLoop, here: InLoop
    ) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if self._by_loop.get(loop) is here:
                del self._by_loop[loop]
            await here.close()

    def _drop_closed(self) -> None:
        """For loops that were closed without that."""
        for loop in list(self._by_loop):
            if loop.is_closed() and (left := self._by_loop.pop(loop, None)):
                close_all_of(loop)
                left.connections.are_closed()

    def _forget(self) -> object:
        """In the child of a fork these are the parent's."""
        parents, self._by_loop = self._by_loop, {}
        return parents
