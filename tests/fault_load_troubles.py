"""Troubles of a process of `fault_load` itself, which it makes for itself when told to."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import structlog

from lock_interceptor.lease import clock
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.store import Claim


def keeper_hangs(store: RedisLockStore, seconds: float) -> None:
    """The thread that renews is blocked when it renews next, until so many seconds are over."""
    until = clock() + seconds
    _when_renewing(store, until, lambda: time.sleep(max(until - clock(), 0)))


def keeper_dies(store: RedisLockStore, seconds: float) -> None:
    """The loop of the thread that renews ends by an error whenever it renews, for so many seconds."""

    def end() -> None:
        raise SystemExit("a trouble that was ordered")

    _when_renewing(store, clock() + seconds, lambda: asyncio.get_running_loop().call_soon(end))


def log_breaks(_: RedisLockStore, seconds: float) -> None:
    """Whatever is logged raises, for so many seconds."""
    until = clock() + seconds

    def sink(_: Any, __: str, event: Any) -> Any:
        if clock() < until:
            raise OSError(28, "No space left on device")
        return event

    structlog.configure(processors=[sink, structlog.processors.KeyValueRenderer()])


TROUBLES: dict[str, Callable[[RedisLockStore, float], None]] = {
    "keeper hangs": keeper_hangs,
    "keeper dies": keeper_dies,
    "log breaks": log_breaks,
}
"""By the order that makes them."""


def _when_renewing(store: RedisLockStore, until: float, do: Callable[[], object]) -> None:
    renew = RedisLockStore.renew

    async def troubled(claim: Claim, *, lease: timedelta) -> bool:
        if clock() < until:
            do()
        return await renew(store, claim, lease=lease)

    store.renew = troubled  # type: ignore[method-assign]
