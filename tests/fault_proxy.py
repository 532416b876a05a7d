"""A `TcpProxy` with the faults that strike single connections, chunks and requests."""

import random
from contextvars import ContextVar

from proxy import TcpProxy, _Way

_BOTH = frozenset(_Way)
_era: ContextVar[int | None] = ContextVar("_era", default=None)
"""In the tasks of a connection: when it was made."""
_torn: ContextVar[list[bool]] = ContextVar("_torn")


class FaultProxy(TcpProxy):
    """Also strands connections, tears replies, resets before it forwards, and delays by chance."""

    def __init__(self, target: int) -> None:
        self._now = 0
        self._resets = self._tears = 0
        self._jitter = (0.0, 0.0)
        super().__init__(target)

    def strand(self) -> None:
        """Let the connections that there are be silent for ever, as after a firewall forgot them."""
        self._now += 1

    def kill_on_next_requests(self, count: int) -> None:
        """Reset the connections on which the next requests come, before these are passed on."""
        self._resets = count

    def tear_next_replies(self, count: int) -> None:
        """Pass on the first byte of the next replies, and then reset their connections."""
        self._tears = count

    def jitter(self, low: float, high: float) -> None:
        """Hold each piece of data back for some time from low to high, in either direction."""
        self._jitter = low, high

    @property
    def struck(self) -> bool:
        """Whether all resets and tears that were asked for have happened."""
        return not (self._resets or self._tears)

    @property
    def _swallowed(self) -> frozenset[_Way]:
        era = _era.get()
        return _BOTH if era is not None and era < self._now else self._all_swallowed

    @_swallowed.setter
    def _swallowed(self, ways: frozenset[_Way]) -> None:
        self._all_swallowed = ways

    @property
    def _delay_seconds(self) -> float:
        return self._all_delay + random.uniform(*self._jitter)  # noqa: S311 - no secret

    @_delay_seconds.setter
    def _delay_seconds(self, seconds: float) -> None:
        self._all_delay, self._jitter = seconds, (0.0, 0.0)

    async def _relay(self, *streams: object) -> None:
        _era.set(self._now)
        _torn.set([])
        await super()._relay(*streams)  # type: ignore[arg-type]

    async def _read(self, source: object, way: _Way) -> bytes:
        if way is _Way.REPLY and _torn.get():
            raise ConnectionResetError
        data = await super()._read(source, way)  # type: ignore[arg-type]
        if way is _Way.REQUEST and self._resets and data:
            self._resets -= 1
            raise ConnectionResetError
        if way is _Way.REPLY and self._tears and len(data) > 1:
            self._tears -= 1
            _torn.get().append(True)
            return data[:1]
        return data
