"""A `TcpProxy` whose faults strike only the connections on which a certain thing was sent."""

import asyncio
from contextvars import ContextVar

from proxy import TcpProxy, _Way

_struck: ContextVar[list[bool]] = ContextVar("_struck", default=[True])  # noqa: B039 - never changed
"""Not empty where faults strike: in the tasks of a connection with the mark, and for who sets them."""


class PickyProxy(TcpProxy):
    """Swallows and delays only on connections on which `mark` was sent; the others go on unharmed."""

    def __init__(self, target: int, mark: str) -> None:
        self._mark = mark.encode()
        super().__init__(target)

    @property
    def _swallowed(self) -> frozenset[_Way]:
        return self._all_swallowed if _struck.get() else frozenset()

    @_swallowed.setter
    def _swallowed(self, ways: frozenset[_Way]) -> None:
        self._all_swallowed = ways

    @property
    def _delay_seconds(self) -> float:
        return self._all_delay if _struck.get() else 0.0

    @_delay_seconds.setter
    def _delay_seconds(self, seconds: float) -> None:
        self._all_delay = seconds

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _struck.set([])
        await super()._relay(reader, writer)

    async def _read(self, source: asyncio.StreamReader, way: _Way) -> bytes:
        data = await super()._read(source, way)
        if way is _Way.REQUEST and self._mark in data:
            _struck.get().append(True)
        return data
