"""Renewals under load: never behind those who wait or leave, and cheap for many locks."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from picky_proxy import PickyProxy
from redis_tools import LEASE, connections, new_claim, settings_for, take
from servers import info
from stage import until
from structlog.testing import capture_logs

from lock_interceptor import LockSettings, LockStoreUnavailable
from lock_interceptor.dev import RedisServer
from lock_interceptor.keeper import Hold, LeaseKeeper, margin
from lock_interceptor.lease import Lease, clock
from lock_interceptor.redis_store import RedisLockStore, scripts
from lock_interceptor.redis_store.connection import Connections
from lock_interceptor.store import Claim

LENGTH = 3.0
CROWD = 250


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of this test's own, whose commands and connections can be counted."""
    with RedisServer() as server:
        yield server


class CountingStore(RedisLockStore):
    """Counts renewals that were answered, and other requests that were not."""

    def __init__(self, settings: LockSettings) -> None:
        super().__init__(settings)
        self.renewals = 0
        self.in_vain = 0

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """See `LockStore.renew`."""
        answer = await super().renew(claim, lease=lease)
        self.renewals += 1
        return answer

    async def acquire(self, claim: Claim, **how: Any) -> Any:
        """See `LockStore.acquire`."""
        with self._counting():
            return await super().acquire(claim, **how)

    async def park(self, claim: Claim, **how: Any) -> None:
        """See `LockStore.park`."""
        with self._counting():
            await super().park(claim, **how)

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        try:
            yield
        except LockStoreUnavailable:
            self.in_vain += 1
            raise


@contextlib.asynccontextmanager
async def keeping(url: str) -> AsyncIterator[tuple[CountingStore, LeaseKeeper]]:
    """A store and a keeper, as a worker has them."""
    # with the patience of a longer lease, since a busy machine is not what this is about
    store = CountingStore(settings_for(url, lease=10))
    keeper = LeaseKeeper(store)
    try:
        yield store, keeper
    finally:
        await keeper.close()
        await store.close()


async def hold(store: CountingStore) -> Hold:
    """Take a new lock, as a guard does."""
    claim, sent = new_claim(), clock()
    granted = await take(store, claim, timedelta(seconds=LENGTH))
    expires = sent + LENGTH - margin(LENGTH)
    lease = Lease(claim.lock.name, granted.token, granted.slot, expires=expires, deadline=sent + 600)
    return Hold(claim, lease, LENGTH, lambda: None)


@contextlib.asynccontextmanager
async def asking(store: CountingStore, claims: list[Claim]) -> AsyncIterator[None]:
    """All of them ask for their locks, again and again."""

    async def ask(claim: Claim) -> None:
        while True:
            with contextlib.suppress(LockStoreUnavailable):
                await store.acquire(claim, lease=LEASE)

    tasks = [asyncio.create_task(ask(claim)) for claim in claims]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def leaving(keeper: LeaseKeeper, claims: list[Claim], lease: Lease) -> AsyncIterator[None]:
    """All of them leave at once, and go on doing so: in a pause a renewal could slip in."""

    def leave(claim: Claim) -> None:
        keeper.step_back(Hold(claim, lease, LENGTH, lambda: None, ticket=1), LEASE)

    async def go_on() -> None:
        for claim in itertools.cycle(claims):
            leave(claim)
            await asyncio.sleep(0.01)

    for claim in claims:
        leave(claim)
    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("what", ["acquire", "park"])
@pytest.mark.parametrize("way", ["shared", "pooled"])
async def test_renewals_do_not_wait_behind_waiters(
    monkeypatch: pytest.MonkeyPatch, server: RedisServer, way: str, what: str
) -> None:
    """While hundreds ask, or leave, on connections that hang, a held lock is renewed undisturbed."""
    if way == "pooled":  # as with Sentinel, and in a Cluster
        monkeypatch.setattr(Connections, "_share", lambda _: None)
    with PickyProxy(server.port, scripts.marked(scripts.load(what)).digest) as proxy, capture_logs() as logs:
        async with keeping(proxy.url()) as (store, keeper), contextlib.AsyncExitStack() as crowd:
            held = await hold(store)
            keeper.keep(held)
            waiters = [new_claim(held.claim.lock) for _ in range(CROWD)]
            proxy.black_hole()
            if what == "acquire":
                await crowd.enter_async_context(asking(store, waiters))
            else:
                await crowd.enter_async_context(leaving(keeper, waiters, held.lease))
            await until(lambda: store.renewals >= 4 and store.in_vain > CROWD, "more than a lease")
            assert not held.lease.lost
            proxy.heal()
            assert await keeper.give_back(held, 10) is not False
    assert not {"lock.doubtful", "lock.lost"} & {entry["event"] for entry in logs}


async def test_what_renewals_cost(server: RedisServer) -> None:
    """Each renewal of many locks costs one command, three or four in a lease, and no new connection."""
    count = 100
    async with keeping(server.url) as (store, keeper):
        holds = [await hold(store) for _ in range(count)]
        for each in holds:
            keeper.keep(each)
        await until(lambda: store.renewals >= count, "the first renewals")
        before, renewed, sent, accepted = clock(), store.renewals, _scripts_sent(server), _accepted(server)
        await until(lambda: store.renewals >= renewed + 3 * count, "three renewals more of each")
        sent, renewed = _scripts_sent(server) - sent, store.renewals - renewed
        assert abs(sent - renewed) <= count  # those under way
        assert sent / count / ((clock() - before) / LENGTH) < 4
        assert _accepted(server) - accepted <= 2  # which are for looking
        assert len(connections(server)) <= 2  # for taking, and for renewing
        await asyncio.gather(*map(keeper.release, holds))


def _scripts_sent(server: RedisServer) -> int:
    stats = info(server, "commandstats")
    names = {"cmdstat_evalsha", "cmdstat_eval"} & stats.keys()
    return sum(int(stats[name].split(",")[0].removeprefix("calls=")) for name in names)


def _accepted(server: RedisServer) -> int:
    return int(info(server, "stats")["total_connections_received"])
