"""Handing a lock on within a process: the next in line asks right behind the release, if it is here."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from patience import waiting
from picky_proxy import PickyProxy
from redis_tools import eventually, line_length, new_claim, settings_for, take
from servers import info

from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.store import Claim, Granted, Waiting

SOON = 6.0
"""Seconds that a loaded machine may take for what takes milliseconds; polls come after 8 and more."""
NEVER = 600.0


class CountingStore(RedisLockStore):
    """Counts who asks how often."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: Counter[str] = Counter()

    async def acquire(self, claim: Claim, **how: Any) -> Granted | Waiting:
        """See `LockStore.acquire`."""
        answer = await super().acquire(claim, **how)
        self.asked[claim.waiter] += 1
        return answer


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[CountingStore]:
    """A store as another process would have it."""
    store = CountingStore(settings_for(url, application_name="handing-on"))
    await store.check()  # the server knows the scripts then: one that has to be sent in full comes too late
    yield store
    await store.close()


@contextlib.asynccontextmanager
async def in_line(store: CountingStore, claim: Claim) -> AsyncIterator[asyncio.Task[Any]]:
    """Somebody who waits, and has heard his place since he began to listen."""
    async with waiting(store, claim, interval=NEVER) as granted:
        await eventually(lambda: store.asked[claim.waiter] >= 2 or granted.done(), "a place in line")
        yield granted


async def test_nobody_here_needs_to_be_told() -> None:
    """With every message lost the whole line is served at once, in order, while it is in one process."""
    with RedisServer() as server, PickyProxy(server.port, "SUBSCRIBE") as proxy:
        async with opened(proxy.url()) as store, contextlib.AsyncExitStack() as stack:
            holder = new_claim()
            await take(store, holder)
            line = [await stack.enter_async_context(in_line(store, new_claim(holder.lock))) for _ in range(2)]
            proxy.black_hole()
            await store.release(holder)
            first = await asyncio.wait_for(line[0], SOON)
            assert not line[1].done()
            # of the first one's turn nobody has heard, so for all that is known here it has not come yet
            await store.release(first.claim)
            proxy.heal()
            assert store.asked[first.claim.waiter] == 3


async def test_the_line_moves_with_every_call() -> None:
    """Who is next here is known by the calls for others, wherever they wait."""
    with RedisServer() as server, PickyProxy(server.port, "SUBSCRIBE") as proxy:
        async with opened(server.url) as there, opened(proxy.url()) as here:
            holder = new_claim()
            await take(here, holder)
            claims = [new_claim(holder.lock) for _ in range(3)]
            async with (
                in_line(there, claims[0]) as first,
                in_line(here, claims[1]) as second,
                in_line(here, claims[2]) as third,
            ):
                await here.release(holder)
                await there.release((await asyncio.wait_for(first, SOON)).claim)
                held = (await asyncio.wait_for(second, SOON)).claim
                proxy.black_hole()
                await here.release(held)
                await asyncio.wait_for(third, SOON)
                proxy.heal()
            assert here.asked[claims[2].waiter] == 3


async def test_who_is_not_next_is_left_in_peace() -> None:
    """A release calls nobody here while the next one is in another process."""
    with RedisServer() as server:
        async with opened(server.url) as there, opened(server.url) as here:
            holder = new_claim()
            await take(here, holder)
            claims = [new_claim(holder.lock) for _ in range(2)]
            async with in_line(there, claims[0]) as first, in_line(here, claims[1]) as second:
                await here.release(holder)
                held = (await asyncio.wait_for(first, SOON)).claim
                assert here.asked[claims[1].waiter] == 2
                assert not second.done()
                await there.release(held)
                await asyncio.wait_for(second, SOON)
            assert here.asked[claims[1].waiter] == 3


@pytest.mark.parametrize("limit", [1, 3])
async def test_it_costs_two_requests_a_turn(limit: int) -> None:
    """Giving back and taking: no message leads to a request in vain."""
    turns = 60
    with RedisServer() as server:
        async with opened(server.url) as store, contextlib.AsyncExitStack() as stack:
            held = [new_claim(limit=limit)]
            held += [new_claim(held[0].lock, limit=limit) for _ in range(limit - 1)]
            for claim in held:
                await take(store, claim)
            line = [
                await stack.enter_async_context(in_line(store, new_claim(held[0].lock, limit=limit)))
                for _ in range(turns)
            ]
            assert await line_length(store, held[0]) == turns
            before = _requests(server)
            for waiter in line:
                await store.release(held.pop(0))
                held.append((await asyncio.wait_for(waiter, SOON)).claim)
            assert _requests(server) - before <= 2 * turns + turns // 10


def _requests(server: RedisServer) -> int:
    stats = info(server, "commandstats")
    return sum(
        int(stats[name].split(",")[0].removeprefix("calls="))
        for name in ("cmdstat_evalsha", "cmdstat_eval")
        if name in stats
    )
