"""When a lease ends: here before it does at the server, and nowhere by a worker's wall clock."""

import asyncio
import time
from datetime import timedelta

import pytest
from patience import waiting
from redis_tools import LEASE, new_claim, open_store, stand_in_line, take
from stage import until

from lock_interceptor import lease as module
from lock_interceptor.dev import RedisServer
from lock_interceptor.keeper import Hold
from lock_interceptor.store import Claim, Granted, Queueing, Waiting
from lock_interceptor.testing import InMemoryLockStore

RATE = 1.01
"""Clocks of workers and of Redis may run apart by one in a hundred."""


class SlowStore(InMemoryLockStore):
    """Each answer takes a while, which passes on a clock that nothing else moves."""

    def __init__(self, seconds: float) -> None:
        super().__init__(lambda: self.now)
        self.now = 1_000.0
        self.seconds = seconds
        self.renewals = 0

    async def acquire(
        self, claim: Claim, *, lease: timedelta, queueing: Queueing | None = None
    ) -> Granted | Waiting:
        """See `LockStore.acquire`."""
        answer = await super().acquire(claim, lease=lease, queueing=queueing)
        self.now += self.seconds
        return answer

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """See `LockStore.renew`; only the first one is answered."""
        self.renewals += 1
        if self.renewals > 1:
            await asyncio.get_running_loop().create_future()
        answer = await super().renew(claim, lease=lease)
        self.now += self.seconds
        return answer

    async def left(self, hold: Hold) -> float:
        """Seconds after which somebody else may be granted this lock."""
        (holder,) = (await self.inspect(hold.claim.lock)).holders
        return holder.lease_left.total_seconds()


def slow_store(monkeypatch: pytest.MonkeyPatch, seconds: float) -> SlowStore:
    """A store on whose clock leases go by here, too."""
    store = SlowStore(seconds)
    monkeypatch.setattr(module, "_read_clock", lambda: store.now)
    return store


async def test_a_grant_ends_here_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds is told before anybody else can be granted, though the answer was slow and clocks differ."""
    store = slow_store(monkeypatch, 1.0)
    async with waiting(store, new_claim(), lease=LEASE) as granted:
        hold = await granted
        assert 0 < hold.lease.remaining * RATE < await store.left(hold)


async def test_a_renewed_lease_ends_here_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same goes for a renewal, which lasts from when it was asked for and not from its answer."""
    store = slow_store(monkeypatch, 0.1)
    async with waiting(store, new_claim(), lease=timedelta(seconds=0.6)) as granted:
        hold = await granted

        def renewed_twice() -> bool:
            store.now += 0.001  # without any time nothing would be due
            return store.renewals > 1

        await until(renewed_twice, "a renewal that was answered, and the next one")
        assert 0 < hold.lease.remaining * RATE < await store.left(hold)


async def test_a_blocked_event_loop_loses_nothing() -> None:
    """A body that blocks the worker's event loop for two leases keeps its lock all the while."""
    async with waiting(InMemoryLockStore(), new_claim(), lease=timedelta(seconds=1)) as granted:
        hold = await granted
        time.sleep(2.2)  # noqa: ASYNC251 - the mistake that this is about
        assert not hold.lease.lost


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_wrong_wall_clock_moves_no_lease(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """A worker whose clock is off by an hour neither takes what another holds nor holds it for longer."""
    async with open_store(valkey) as store:
        holder = new_claim()
        await take(store, holder)
        right, right_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: right() + hours * 3600)
        monkeypatch.setattr(time, "time_ns", lambda: right_ns() + hours * 3600 * 10**9)
        await stand_in_line(store, new_claim(holder.lock))
        assert await store.renew(holder, lease=LEASE)
        monkeypatch.undo()
        (held,) = (await store.inspect(holder.lock)).holders
        assert timedelta(0) < held.lease_left <= LEASE
