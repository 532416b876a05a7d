"""Answers that get lost: what was asked may or may not have happened, and asking again is safe."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
from patience import waiting
from proxy import TcpProxy
from redis_tools import LEASE, eventually, new_claim, open_store, take, until_answered
from servers import command

from lock_interceptor import LockStoreUnavailable
from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.store import Claim, Granted, Waiting

PASSWORD = "right"  # noqa: S105 - of a server that lives for a moment


@dataclass
class Line:
    """A store whose connections can be broken, and one whose connections cannot."""

    server: RedisServer
    proxy: TcpProxy
    store: RedisLockStore
    direct: RedisLockStore

    async def holders(self, claim: Claim) -> list[str]:
        """Who holds the lock of this claim, at the server."""
        return [holder.owner for holder in (await self.direct.inspect(claim.lock)).holders]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server with a password, so that connecting takes a few steps."""
    with RedisServer("--requirepass", PASSWORD) as server:
        yield server


@pytest.fixture
async def line(server: RedisServer) -> AsyncIterator[Line]:
    """Requests through the proxy time out after 0.2 seconds."""
    with TcpProxy(server.port) as proxy:
        async with (
            open_store(proxy.url(), redis_password=PASSWORD, lease=2) as store,
            open_store(server, redis_password=PASSWORD) as direct,
        ):
            await direct.check()  # or the lost answer would be the one that asks for a script's text
            await store.inspect(new_claim().lock)
            await store.renew(new_claim(), lease=LEASE)  # on a connection of its own
            yield Line(server, proxy, store, direct)


Fault = Callable[[TcpProxy], None]
FAULTS = [
    pytest.param(TcpProxy.drop_replies, True, id="reply-lost"),
    pytest.param(TcpProxy.kill_on_next_reply, True, id="reset-before-reply"),
    pytest.param(lambda proxy: proxy.delay(0.3), None, id="too-late"),
    pytest.param(TcpProxy.drop_requests, False, id="request-lost"),
    pytest.param(TcpProxy.black_hole, False, id="black-hole"),
]


@pytest.mark.parametrize(("fault", "happens"), FAULTS)
async def test_acquiring_again_takes_one_slot(line: Line, fault: Fault, happens: bool | None) -> None:
    """After a lost answer the same claim gets the slot and token that it had got, or its first ones."""
    claim = new_claim(limit=2)
    fault(line.proxy)
    with pytest.raises(LockStoreUnavailable):
        await line.store.acquire(claim, lease=LEASE)
    before = (await line.direct.inspect(claim.lock)).holders
    assert happens is None or bool(before) is happens
    line.proxy.heal()
    again = await until_answered(lambda: line.store.acquire(claim, lease=LEASE))
    assert isinstance(again, Granted)
    assert all((holder.token, holder.slot) == (again.token, again.slot) for holder in before)
    assert await line.holders(claim) == [claim.owner]


@pytest.mark.parametrize(("fault", "happens"), FAULTS)
async def test_renewing_again_renews(line: Line, fault: Fault, happens: bool | None) -> None:
    """A renewal without an answer is repeated, and the lease is there."""
    claim = new_claim()
    await take(line.direct, claim, timedelta(seconds=20))
    fault(line.proxy)
    with pytest.raises(LockStoreUnavailable):
        await line.store.renew(claim, lease=LEASE)
    (holder,) = (await line.direct.inspect(claim.lock)).holders
    assert happens is None or (holder.lease_left > timedelta(seconds=21)) is happens
    line.proxy.heal()
    assert await until_answered(lambda: line.store.renew(claim, lease=LEASE))


@pytest.mark.parametrize(("fault", "happens"), FAULTS)
async def test_releasing_again_frees_one_slot(line: Line, fault: Fault, happens: bool | None) -> None:
    """A release without an answer is repeated, and takes nothing from whoever came next."""
    claim = new_claim()
    following = new_claim(claim.lock)
    await take(line.direct, claim)
    fault(line.proxy)
    with pytest.raises(LockStoreUnavailable):
        await line.store.release(claim)
    taken = await line.direct.acquire(following, lease=LEASE)
    assert happens is None or isinstance(taken, Granted) is happens
    line.proxy.heal()
    await until_answered(lambda: line.store.release(claim))
    await take(line.direct, following)
    assert await line.holders(claim) == [following.owner]


async def test_a_grant_that_nobody_heard_of_ends_with_its_lease(line: Line) -> None:
    """A lock that was taken without an answer and never asked for again is free after one lease."""
    claim = new_claim()
    following = new_claim(claim.lock)
    line.proxy.drop_replies()
    with pytest.raises(LockStoreUnavailable):
        await line.store.acquire(claim, lease=timedelta(seconds=1))
    start = time.monotonic()
    while isinstance(await line.direct.acquire(following, lease=LEASE), Waiting):
        assert time.monotonic() - start < 2
        await asyncio.sleep(0.02)


async def test_giving_up_after_a_lost_answer_gives_back(line: Line) -> None:
    """A waiter that is cancelled when it may hold the lock releases it, well before its lease."""
    claim = new_claim()
    line.proxy.drop_replies()
    async with waiting(line.store, claim) as granted:
        await eventually(lambda: line.holders(claim), "the grant that nobody hears of")
        assert not granted.done()
        granted.cancel()
        await asyncio.gather(granted, return_exceptions=True)
        line.proxy.heal()
    await eventually(lambda: _is_free(line, claim), "the release")


async def _is_free(line: Line, claim: Claim) -> bool:
    return not await line.holders(claim)


async def test_a_cancelled_request_leaks_nothing(line: Line) -> None:
    """At whatever moment a request is cancelled, it ends so, and a release afterwards leaves nothing.

    No later request on the same connection gets its answer.
    """
    crowded = new_claim(limit=3)
    for _ in range(3):
        await take(line.direct, new_claim(crowded.lock, limit=3))
    for turns in range(40):
        claim = new_claim()
        if turns % 2:
            line.proxy.cut()  # and the request connects first
        request = asyncio.create_task(line.store.acquire(claim, lease=LEASE))
        for _ in range(turns // 2):
            await asyncio.sleep(0)
        done = request.done()
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        assert done or request.cancelled()
        assert len((await until_answered(lambda: line.store.inspect(crowded.lock))).holders) == 3
        await until_answered(lambda: line.store.release(claim))  # noqa: B023 - awaited here
        assert await line.holders(claim) == []


async def test_answers_never_get_mixed_up(line: Line) -> None:
    """Under delays, resets and cancellations each request gets its own answer or an error."""
    dice = random.Random(7)  # noqa: S311 - not for secrets
    locks = [new_claim(limit=9) for _ in range(6)]
    for count, lock in enumerate(locks):
        for _ in range(count):
            await take(line.direct, new_claim(lock.lock, limit=9))

    async def ask(count: int) -> None:
        try:
            async with asyncio.timeout(dice.choice([0.01, 0.05, 1])):
                state = await line.store.inspect(locks[count].lock)
        except (LockStoreUnavailable, TimeoutError):
            return
        assert len(state.holders) == count

    for _ in range(12):
        line.proxy.delay(dice.choice([0, 0.01, 0.12]))
        asked = asyncio.gather(*(ask(count) for count in range(len(locks))))
        if dice.random() < 0.5:
            line.proxy.kill_on_next_reply()
        await asked
    line.proxy.heal()
    await until_answered(lambda: line.store.inspect(locks[0].lock))


async def test_a_server_that_forgets_scripts_is_told_again(line: Line) -> None:
    """SCRIPT FLUSH, as after a restart or failover, goes unnoticed by every operation."""
    claim = new_claim()
    waiter = new_claim(claim.lock)
    for call in (
        lambda: take(line.store, claim),
        lambda: line.store.renew(claim, lease=LEASE),
        lambda: line.store.inspect(claim.lock),
        lambda: line.store.park(waiter, ticket=1, keep=LEASE),
        lambda: line.store.release(claim),
    ):
        command(line.server, "SCRIPT", "FLUSH", password=PASSWORD)
        assert await call() is not False
