"""Turns at a lock without Temporal: everybody gets as many, and without any message they come in time."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from figures import measured
from patience import Patient, waiting
from redis_tools import LEASE, eventually, line_length, new_claim, open_store, take
from servers import info

from lock_interceptor.dev import RedisServer
from lock_interceptor.guard import Guard
from lock_interceptor.keeper import LeaseKeeper
from lock_interceptor.redis_store import RedisLockStore, wakeups
from lock_interceptor.room import WaitingRoom
from lock_interceptor.settings import LockSettings
from lock_interceptor.terms import Want

CLIENTS = 24
BODY = 0.01
TURNS = 12
SCALE = 20
"""A minute is three seconds here, and everything that takes time is as much shorter."""
SLACK = 0.4
"""Seconds that a loaded machine may be late."""


@pytest.fixture
async def store(valkey: RedisServer) -> AsyncIterator[RedisLockStore]:
    async with open_store(valkey) as store:
        yield store


async def test_everybody_gets_as_many_turns(store: RedisLockStore) -> None:
    """Of many who take a lock again and again nobody gets noticeably more of it than another."""
    keeper = LeaseKeeper(store)
    guard = Guard(
        store,
        keeper,
        WaitingRoom(CLIENTS),
        retry_interval=timedelta(seconds=5),
        max_wait=timedelta(seconds=30),
    )
    lock = new_claim().lock
    turns: Counter[int] = Counter(dict.fromkeys(range(CLIENTS), 0))

    async def take_turns(client: int) -> None:
        async def body(*_: Any) -> None:
            await asyncio.sleep(BODY)
            turns[client] += 1

        while turns.total() < CLIENTS * TURNS:
            await guard.run([Want(claim=new_claim(lock), lease=LEASE)], Patient(), body)

    start = time.monotonic()
    await asyncio.wait_for(asyncio.gather(*map(take_turns, range(CLIENTS))), 60)
    took = time.monotonic() - start
    await keeper.close()

    most, least = max(turns.values()), min(turns.values())
    measured(f"{CLIENTS} clients, {turns.total() / took:.0f} turns a second: {least} to {most} turns each")
    assert most <= 1.3 * least


async def test_turns_come_without_any_message() -> None:
    """On a server that publishes nothing each waiter has the lock within a poll interval of its release."""
    interval, late = 0.5, []
    with RedisServer("--rename-command", "PUBLISH", "") as server:
        async with open_store(server) as store, AsyncExitStack() as line:
            holder = new_claim()
            await take(store, holder)
            grants = []
            for place in range(8):
                grants.append(
                    await line.enter_async_context(waiting(store, new_claim(holder.lock), interval=interval))
                )
                await eventually(lambda place=place: _waits(store, holder, place + 1), "the next in line")
            for granted in grants:
                released = time.monotonic()
                await store.release(holder)
                holder = (await asyncio.wait_for(granted, 10)).claim
                late.append(time.monotonic() - released)
        assert "cmdstat_publish" not in info(server, "commandstats")

    measured(f"without messages, polling every {interval} s: granted within {max(late):.2f} s of the release")
    assert max(late) < interval + SLACK


async def _waits(store: RedisLockStore, claim: Any, count: int) -> bool:
    return await line_length(store, claim) == count


async def test_commands_of_a_waiter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting in a worker with the default settings costs at most twenty commands a minute."""
    monkeypatch.setattr(wakeups, "SILENCE", wakeups.SILENCE / SCALE)
    interval = LockSettings(_env_file=None).retry_interval.total_seconds() / SCALE
    minutes = 2

    with RedisServer() as server:

        def commands() -> int:
            """All that a client sends; what scripts do is counted under other names."""
            names = ("evalsha", "eval", "subscribe", "unsubscribe", "ping", "hello", "auth", "select")
            counts = info(server, "commandstats")
            lines = [counts.get(f"cmdstat_{name}", "calls=0,") for name in names]
            return sum(int(line.removeprefix("calls=").split(",")[0]) for line in lines)

        async with open_store(server) as store:
            holder = new_claim()
            await take(store, holder)
            async with waiting(store, new_claim(holder.lock), interval=interval) as granted:
                await eventually(lambda: _waits(store, holder, 1), "the waiter")
                before, start = commands(), time.monotonic()
                await asyncio.sleep(minutes * 60 / SCALE)
                sent, took = commands() - before, (time.monotonic() - start) * SCALE / 60
                assert not granted.done()

    measured(f"a waiter sends {sent / took:.1f} commands a minute")
    assert 10 < sent / took <= 20
