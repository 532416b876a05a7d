"""Wake-ups make waiting fast; without them polling goes on, and a lost subscriber mends itself."""

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from patience import waiting
from proxy import TcpProxy
from redis_tools import (
    connections,
    eventually,
    line_length,
    new_claim,
    open_store,
    settings_for,
    stand_in_line,
    take,
)
from rights import SENT
from servers import command, info

from lock_interceptor import LockSettings
from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store import RedisLockStore, wakeups
from lock_interceptor.store import Claim

SOON = 5.0
"""Seconds that a loaded machine may take for what takes milliseconds; polls are much further apart here."""


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of this test's own, whose connections can be counted and cut."""
    with RedisServer() as server:
        yield server


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisLockStore]:
    async with open_store(server) as store:
        yield store


def subscribers(server: RedisServer) -> list[str]:
    """The ids of the connections that listen."""
    return [client["id"] for client in connections(server, kind="pubsub") if client["sub"] != "0"]


def _other_subscriber(server: RedisServer, before: list[str]) -> bool:
    return subscribers(server) not in ([], before)


class DeafStore(RedisLockStore):
    """No wake-up ever arrives."""

    @contextlib.asynccontextmanager
    async def wakeups(self, claim: Claim) -> AsyncIterator[asyncio.Event]:  # noqa: ARG002 - as the base class
        yield asyncio.Event()


async def test_a_release_wakes_the_next_waiter(server: RedisServer, store: RedisLockStore) -> None:
    """Whoever waits gets the lock at once when it is given back, long before the next poll."""
    holder = new_claim()
    await take(store, holder)
    async with waiting(store, new_claim(holder.lock)) as granted:
        await eventually(lambda: subscribers(server), "the subscription")
        await store.release(holder)
        await asyncio.wait_for(granted, SOON)


async def test_polling_grants_without_any_message(server: RedisServer) -> None:
    """With every message lost a waiter has the lock within a poll interval after its release."""
    async with open_store(server) as holding:
        holder = new_claim()
        await take(holding, holder)
        deaf = DeafStore(settings_for(server.url))
        async with waiting(deaf, new_claim(holder.lock), interval=0.5) as granted:
            await eventually(lambda: line_length(holding, holder), "a waiter")
            await holding.release(holder)
            start = time.monotonic()
            await asyncio.wait_for(granted, SOON)
            assert time.monotonic() - start < 0.5 + 0.4  # the interval, and time for a loaded machine
        await deaf.close()


async def test_a_cut_subscriber_comes_back(server: RedisServer, store: RedisLockStore) -> None:
    """After the server cut the subscriber's connection a new one is made, and wake-ups arrive again."""
    holder = new_claim()
    await take(store, holder)
    async with waiting(store, new_claim(holder.lock)) as granted:
        for _ in range(3):
            await eventually(lambda: subscribers(server), "the subscription")
            before = subscribers(server)
            command(server, "CLIENT", "KILL", "TYPE", "pubsub")
            await eventually(functools.partial(_other_subscriber, server, before), "another subscription")
        await store.release(holder)
        await asyncio.wait_for(granted, SOON)


async def test_a_waiter_that_comes_while_the_subscriber_reconnects_is_served(
    server: RedisServer, store: RedisLockStore
) -> None:
    """At whatever moment after a cut somebody begins to listen, the subscription reaches the server."""
    async with store.wakeups(new_claim()):
        for turns in range(25):
            await eventually(lambda: len(subscribers(server)) == 1, "one subscription")
            command(server, "CLIENT", "KILL", "TYPE", "pubsub")
            for _ in range(turns):
                await asyncio.sleep(0)
            async with store.wakeups(new_claim()) as called:
                await asyncio.wait_for(called.wait(), SOON)
        assert len(connections(server, kind="pubsub")) == 1


async def test_nothing_is_left_after_the_last_waiter(
    server: RedisServer, store: RedisLockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels are left with their waiters, and after a while of silence the connection is closed."""
    monkeypatch.setattr(wakeups, "SILENCE", 0.3)
    for _ in range(2):
        async with store.wakeups(new_claim()) as first, store.wakeups(new_claim()) as second:
            await asyncio.wait_for(asyncio.gather(first.wait(), second.wait()), SOON)
            assert len(command(server, "PUBSUB", "CHANNELS")) == 2
        await eventually(lambda: not command(server, "PUBSUB", "CHANNELS"), "the end of all subscriptions")
        idle = [task for task in asyncio.all_tasks() if task.get_name() == "lock_interceptor.wakeups"]
        await asyncio.wait_for(asyncio.gather(*idle), SOON)
        assert not connections(server, kind="pubsub")


async def test_a_hung_subscriber_is_noticed(monkeypatch: pytest.MonkeyPatch, server: RedisServer) -> None:
    """A connection on which nothing comes any more, not even an error, is replaced."""
    monkeypatch.setattr(wakeups, "SILENCE", 0.2)
    monkeypatch.setattr(wakeups, "ANSWER", 0.3)
    with TcpProxy(server.port) as proxy:
        async with open_store(proxy.url()) as store, store.wakeups(new_claim()) as called:
            await asyncio.wait_for(called.wait(), SOON)
            before = subscribers(server)
            called.clear()
            proxy.black_hole()
            # a second connection shows that the first one is given up
            await eventually(lambda: proxy.connections > 1, "another connection")
            proxy.heal()
            await asyncio.wait_for(called.wait(), SOON)
            await eventually(lambda: _other_subscriber(server, before), "the other subscription")


async def test_a_release_before_the_subscription_is_not_missed(store: RedisLockStore) -> None:
    """Who asked, and begins to listen when the lock has been released already, asks again at once."""
    holder = new_claim()
    waiter, second = new_claim(holder.lock), new_claim(holder.lock)
    await take(store, holder)
    await stand_in_line(store, waiter)
    await store.release(holder)
    async with store.wakeups(waiter) as called:
        await asyncio.wait_for(called.wait(), SOON)
        # and when the channel is subscribed already
        async with store.wakeups(second) as called_too:
            await asyncio.wait_for(called_too.wait(), SOON)


async def test_a_waiter_costs_few_commands(
    server: RedisServer, store: RedisLockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiting minute with default settings is 20 commands at most; here in a fast-forward of 1 to 25."""
    speed = 25
    interval = LockSettings.model_fields["retry_interval"].default.total_seconds()
    monkeypatch.setattr(wakeups, "SILENCE", wakeups.SILENCE / speed)
    holder = new_claim()
    await take(store, holder)

    def sent() -> int:
        """Count what clients sent, and not what scripts did."""
        names = {f"cmdstat_{name}" for name in SENT}
        stats = info(server, "commandstats")
        return sum(int(stats[name].split(",")[0].removeprefix("calls=")) for name in names & stats.keys())

    async with waiting(store, new_claim(holder.lock), interval=interval / speed):
        await eventually(lambda: subscribers(server), "the subscription")
        before, start = sent(), time.monotonic()
        await asyncio.sleep(60 / speed)
        minutes = (time.monotonic() - start) / (60 / speed)
        assert 5 < (sent() - before) / minutes <= 20


async def test_the_store_can_be_closed_at_any_moment(server: RedisServer) -> None:
    """Closing ends the subscriber at once, whatever it is doing."""
    for turns in range(60):
        async with open_store(server) as store:
            async with store.wakeups(claim := new_claim()):
                await store.inspect(claim.lock)
                for _ in range(turns):
                    await asyncio.sleep(0)
            await asyncio.wait_for(store.close(), SOON)
    await eventually(lambda: not connections(server), "the end of all connections")
