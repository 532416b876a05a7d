"""The lock's real scripts under a clock that the test moves: nothing waits, and edges are hit exactly."""

import functools
import hashlib
from datetime import timedelta
from typing import Any

import pytest

from lock_interceptor.redis_store import RedisLockStore, connection, scripts
from lock_interceptor.redis_store.scripts import Script
from lock_interceptor.settings import LockSettings
from lock_interceptor.store import LockId

_READS_TIME = "redis.call('TIME')"
_IS_TOLD_TIME = "{ARGV[#ARGV - 1], ARGV[#ARGV]}"
_READS_INFO = "redis.pcall('INFO', 'replication')"
_MAY_BE_TOLD = "(ARGV[#ARGV - 2] ~= '' and ARGV[#ARGV - 2] or redis.pcall('INFO', 'replication'))"
_real_load = scripts.load


class Clock:
    """Seconds since 1970, kept in whole microseconds; called, it reads itself."""

    def __init__(self) -> None:
        self.us = 1_800_000_000_000_000
        self.primary = ""
        """Replication id of the server whose clock this is; empty: the one that it really has."""

    def __call__(self) -> float:
        """Return the seconds."""
        return self.us / 1e6

    def step(self, seconds: float) -> None:
        """Move forward, or with a negative number back."""
        self.us += timedelta(seconds=seconds) // timedelta(microseconds=1)


class VirtualTimeStore(RedisLockStore):
    """A `RedisLockStore` that tells its scripts what they ask for; needs `use_told_time` to be in force."""

    def __init__(self, settings: LockSettings, clock: Clock) -> None:
        super().__init__(settings)
        self._clock = clock

    async def _run(self, name: str, lock: LockId, *args: str | int, **options: Any) -> Any:
        primary = self._clock.primary
        info = f"connected_slaves:0\r\nmaster_replid:{primary}\r\n" if primary else ""
        told = (info, *divmod(self._clock.us, 1_000_000))
        return await super()._run(name, lock, *args, *told, **options)


def use_told_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give stores scripts that take the time, and who is the primary, from their last three arguments."""
    monkeypatch.setattr(scripts, "load", load_told_time)
    # where time is told, a busy machine must not look like a dead server
    monkeypatch.setattr(connection, "request_timeout", lambda _: 30.0)


@functools.cache
def load_told_time(name: str) -> Script:
    """Load a script with these expressions changed, and nothing else."""
    text = _real_load(name).text
    assert text.count(_READS_TIME) == 1
    assert text.count(_READS_INFO) == (name == "acquire")
    text = text.replace(_READS_TIME, _IS_TOLD_TIME).replace(_READS_INFO, _MAY_BE_TOLD)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
