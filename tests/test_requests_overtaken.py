"""A request for a lock that is still on its way when its attempt ends: it is executed after the release."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from patience import Patient
from proxy import TcpProxy
from redis_tools import new_claim, open_store, take
from stage import until

from lock_interceptor import LockNotAcquired, LockStoreUnavailable
from lock_interceptor import keeper as keepers
from lock_interceptor.dev import RedisServer
from lock_interceptor.guard import Guard
from lock_interceptor.keeper import LeaseKeeper
from lock_interceptor.lease import Lease
from lock_interceptor.room import WaitingRoom
from lock_interceptor.store import Claim, Granted, LockStore, Queueing, Waiting
from lock_interceptor.terms import Want
from lock_interceptor.testing import InMemoryLockStore
from lock_interceptor.watchdog import Watchdog

LEASE = timedelta(seconds=30)
MINUTE = timedelta(minutes=1)


class SlowNetwork(InMemoryLockStore):
    """Holds a request for a lock back, however its sender ends; all other requests overtake it."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self.sent = 0
        self.executed = 0

    async def acquire(
        self, claim: Claim, *, lease: timedelta, queueing: Queueing | None = None
    ) -> Granted | Waiting:
        """See `LockStore.acquire`."""

        async def arrive() -> Granted | Waiting:
            await asyncio.sleep(self._seconds)
            self.executed += 1
            return await InMemoryLockStore.acquire(self, claim, lease=lease, queueing=queueing)

        self.sent += 1
        return await asyncio.shield(asyncio.create_task(arrive()))


class Ending(Patient):
    """An attempt that is cancelled: for good, or since its worker shuts down and another one goes on."""

    def __init__(self, *, keeps_place: bool) -> None:
        super().__init__()
        self._keeps_place = keeps_place

    def keeps_place(self) -> bool:
        return self._keeps_place

    def cancelled(self) -> BaseException:
        if self._keeps_place:
            return LockNotAcquired("this worker shuts down", timedelta(seconds=1))
        return asyncio.CancelledError()


@asynccontextmanager
async def guarding(store: LockStore) -> AsyncIterator[Guard]:
    keeper = LeaseKeeper(store)
    yield Guard(store, keeper, WaitingRoom(10), retry_interval=MINUTE, max_wait=MINUTE)
    await keeper.close()


async def body(leases: tuple[Lease, ...], watchdog: Watchdog) -> None:
    pytest.fail("the attempt was cancelled before")


async def cancelled_on_the_way(
    guard: Guard, claim: Claim, sent: Callable[[], object], *, keeps_place: bool
) -> None:
    """An attempt that is cancelled while its request is on its way."""
    attempt = Ending(keeps_place=keeps_place)
    run = asyncio.create_task(guard.run([Want(claim=claim, lease=LEASE)], attempt, body))
    await until(sent, "a request on its way")
    run.cancel()
    with pytest.raises(LockNotAcquired if keeps_place else asyncio.CancelledError):
        await run


async def nobody_is_left(store: LockStore, claim: Claim) -> bool:
    """Whether nobody holds the lock, and nobody who is taken for present stands in the way of others."""
    state = await store.inspect(claim.lock)
    return not state.holders and not any(waiter.present for waiter in state.waiters)


@pytest.mark.parametrize("keeps_place", [False, True], ids=["leaves", "parks"])
@pytest.mark.parametrize("busy", [False, True], ids=["free", "busy"])
@pytest.mark.parametrize("seconds", [0.2, 1.0, 2.5])
async def test_cancelled_on_the_way(
    monkeypatch: pytest.MonkeyPatch, *, keeps_place: bool, busy: bool, seconds: float
) -> None:
    """However late it is executed, it holds no slot and blocks no line for longer than that again."""
    monkeypatch.setattr(keepers, "LATE", 0.1)
    store, claim, other = SlowNetwork(seconds), new_claim(), new_claim()
    if busy:
        other = new_claim(claim.lock)
        assert isinstance(await InMemoryLockStore.acquire(store, other, lease=MINUTE), Granted)
    async with guarding(store) as guard:
        await cancelled_on_the_way(guard, claim, lambda: store.sent, keeps_place=keeps_place)
        await until(lambda: store.executed, "its execution")
        if busy:
            await store.release(other)
        await until(lambda: nobody_is_left(store, claim), "an end of it")


@pytest.mark.parametrize("keeps_place", [False, True], ids=["leaves", "parks"])
@pytest.mark.parametrize("durability", ["primary", "failover"])
async def test_cancelled_on_the_way_to_redis(
    valkey: RedisServer, durability: str, *, keeps_place: bool
) -> None:
    """On the shared connection and on pooled ones, where another connection overtakes the request."""
    with TcpProxy(valkey.port) as proxy:
        async with open_store(proxy.url(), durability=durability) as store, guarding(store) as guard:
            claim, first = new_claim(), new_claim()
            await take(store, first)
            await store.release(first)
            proxy.delay(1.0)
            began = asyncio.get_running_loop().time()
            await cancelled_on_the_way(
                guard,
                claim,
                lambda: asyncio.get_running_loop().time() > began + 0.2,
                keeps_place=keeps_place,
            )
            proxy.delay(0)
            async with open_store(valkey, application_name=claim.lock.application) as direct:
                await until(lambda: nobody_is_left(direct, claim), "an end of it")
                newcomer = new_claim(claim.lock)
                answer = await direct.acquire(newcomer, lease=LEASE)
                assert isinstance(answer, Granted)


async def test_an_attempt_that_gives_up_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that yields since the store was silent leaves no grant behind, when the store wakes up at last."""
    monkeypatch.setattr(keepers, "LATE", 0.1)

    class Silent(SlowNetwork):
        async def acquire(
            self, claim: Claim, *, lease: timedelta, queueing: Queueing | None = None
        ) -> Granted | Waiting:
            """See `LockStore.acquire`."""
            try:
                async with asyncio.timeout(0.1):
                    return await super().acquire(claim, lease=lease, queueing=queueing)
            except TimeoutError as error:
                raise LockStoreUnavailable("no answer") from error

    store, claim = Silent(1.5), new_claim()
    keeper = LeaseKeeper(store)
    guard = Guard(store, keeper, WaitingRoom(10), retry_interval=MINUTE, max_wait=timedelta(seconds=0.5))
    with pytest.raises(LockStoreUnavailable):
        await guard.run([Want(claim=claim, lease=LEASE)], Patient(), body)
    await until(lambda: store.executed == store.sent, "the execution of all requests")
    await until(lambda: nobody_is_left(store, claim), "an end of them")
    await keeper.close()
