"""`FaultyLockStore`: faults as they look to a lock's users."""

import asyncio
from datetime import timedelta

import pytest

from lock_interceptor import LockStoreUnavailable
from lock_interceptor.store import Claim, Granted, LockId, LockStore, Queueing, Waiting
from lock_interceptor.testing import FaultyLockStore, InMemoryLockStore

LEASE = timedelta(seconds=30)
QUEUEING = Queueing(presence=LEASE, keep=LEASE)


@pytest.fixture
def store() -> FaultyLockStore:
    """A store without faults so far."""
    return FaultyLockStore()


def claim(owner: str, key: str | None = None, *, limit: int = 2) -> Claim:
    """A claim of the lock "warehouse"."""
    lock = LockId("test", "warehouse", key)
    return Claim(lock=lock, owner=owner, waiter=f"for-{owner}", limit=limit)


async def held_by(store: LockStore, key: str | None = None) -> int:
    """How many hold the lock."""
    return len((await store.inspect(LockId("test", "warehouse", key))).holders)


def test_it_is_a_lock_store() -> None:
    """It has all methods of the protocol, in front of a store in memory or another one."""
    inner = InMemoryLockStore()
    assert isinstance(FaultyLockStore(), LockStore)
    assert FaultyLockStore(inner).inner is inner


async def test_busy_until_left(store: FaultyLockStore) -> None:
    """Somebody else holds all slots while entered, and none afterwards."""
    async with store.busy("warehouse"):
        answer = await store.acquire(claim("me"), lease=LEASE)
        assert isinstance(answer, Waiting)
        assert answer.held == 2
        assert {holder.party.workflow for holder in answer.holders} == {"somebody-else"}
    assert await held_by(store) == 0
    assert isinstance(await store.acquire(claim("me"), lease=LEASE), Granted)


async def test_busy_wakes_who_waited(store: FaultyLockStore) -> None:
    """Waiters stand in line meanwhile, and are woken when somebody else gives the lock back."""
    async with store.wakeups(claim("me")) as wake:
        async with store.busy("warehouse"):
            assert isinstance(await store.acquire(claim("me"), lease=LEASE, queueing=QUEUEING), Waiting)
            await wake.wait()  # the one that each begins with
            wake.clear()
        await asyncio.wait_for(wake.wait(), 10)
    assert isinstance(await store.acquire(claim("me"), lease=LEASE, queueing=QUEUEING), Granted)


async def test_busy_takes_what_is_free(store: FaultyLockStore) -> None:
    """Who holds the lock already keeps it, and gets the same grant when asking again."""
    before = await store.acquire(claim("me"), lease=LEASE)
    async with store.busy("warehouse"):
        assert isinstance(await store.acquire(claim("other"), lease=LEASE), Waiting)
        assert await store.acquire(claim("me"), lease=LEASE) == before
        assert await held_by(store) == 2
    assert await held_by(store) == 1


async def test_busy_slots(store: FaultyLockStore) -> None:
    """Somebody else may take only some of the slots."""
    async with store.busy("warehouse", slots=1):
        assert isinstance(await store.acquire(claim("me"), lease=LEASE), Granted)
        assert isinstance(await store.acquire(claim("other"), lease=LEASE), Waiting)


async def test_one_key_or_all(store: FaultyLockStore) -> None:
    """A lock is named with its key, or by its name for all keys."""
    async with store.busy("warehouse[north]"):
        assert isinstance(await store.acquire(claim("a", "north"), lease=LEASE), Waiting)
        assert isinstance(await store.acquire(claim("b", "south"), lease=LEASE), Granted)
        assert isinstance(await store.acquire(claim("c"), lease=LEASE), Granted)
    async with store.busy("warehouse"):
        assert isinstance(await store.acquire(claim("a", "north"), lease=LEASE), Waiting)
    assert (await held_by(store, "south"), await held_by(store, "north")) == (1, 0)


class SlowStore(InMemoryLockStore):
    """Its answers take a moment, as those of a server do."""

    async def acquire(
        self, claim: Claim, *, lease: timedelta, queueing: Queueing | None = None
    ) -> Granted | Waiting:
        """See `LockStore.acquire`."""
        answer = await super().acquire(claim, lease=lease, queueing=queueing)
        await asyncio.sleep(0)
        return answer


@pytest.mark.parametrize("moments", range(8))
async def test_who_asks_while_busy_ends_leaves_nothing_taken(moments: int) -> None:
    """Whenever it ends between question and answer, nothing stays taken by somebody else."""
    store = FaultyLockStore(SlowStore())
    async with store.busy("warehouse"):
        asking = asyncio.create_task(store.acquire(claim("me", limit=5), lease=LEASE))
        for _ in range(moments):
            await asyncio.sleep(0)
    await asking
    await store.release(claim("me", limit=5))
    assert await held_by(store) == 0


async def test_lose_takes_the_lock_away(store: FaultyLockStore) -> None:
    """Holders are told at their next renewal, that is final, and the slot is free for others."""
    for owner, key in (("a", "north"), ("b", "north"), ("c", "south")):
        await store.acquire(claim(owner, key), lease=LEASE)
    await store.lose("warehouse[north]")
    assert [await store.renew(claim(owner, "north"), lease=LEASE) for owner in "ab"] == [False, False]
    assert await store.release(claim("a", "north")) is False
    assert await store.renew(claim("c", "south"), lease=LEASE)
    assert isinstance(await store.acquire(claim("d", "north"), lease=LEASE), Granted)


async def test_nothing_to_lose_is_a_mistake(store: FaultyLockStore) -> None:
    """A test that takes away what nobody holds is told what is held."""
    with pytest.raises(LookupError, match="nobody holds 'warehouse' who could lose it; held is nothing"):
        await store.lose("warehouse")
    await store.acquire(claim("a", "north"), lease=LEASE)
    with pytest.raises(LookupError, match=r"held is warehouse\[north\]"):
        await store.lose("warehouse[south]")
    await store.release(claim("a", "north"))
    with pytest.raises(LookupError, match="held is nothing"):
        await store.lose("warehouse")
    await store.acquire(claim("b", "north"), lease=LEASE)
    await store.park(claim("b", "north"), keep=LEASE)
    with pytest.raises(LookupError, match="held is nothing"):
        await store.lose("warehouse")


async def test_unavailable_before(store: FaultyLockStore) -> None:
    """Requests get lost: nothing happens, whatever is asked for."""
    mine = claim("me")
    with store.unavailable():
        for request in (
            store.acquire(mine, lease=LEASE),
            store.renew(mine, lease=LEASE),
            store.release(mine),
            store.park(mine, keep=LEASE),
            store.inspect(mine.lock),
            store.check(),
        ):
            with pytest.raises(LockStoreUnavailable, match=r"request .* was lost"):
                await request
        assert await held_by(store.inner) == 0
    await store.check()
    await store.close()


async def test_unavailable_after(store: FaultyLockStore) -> None:
    """Answers get lost: it happened, and asking again tells how it went."""
    mine = claim("me")
    with store.unavailable(after=True):
        with pytest.raises(LockStoreUnavailable, match="answer of acquire was lost"):
            await store.acquire(mine, lease=LEASE)
        assert await held_by(store.inner) == 1
    assert isinstance(await store.acquire(mine, lease=LEASE), Granted)
    with store.unavailable(after=True), pytest.raises(LockStoreUnavailable):
        await store.release(mine)
    assert await held_by(store) == 0


async def test_unavailable_for_some(store: FaultyLockStore) -> None:
    """Single operations fail, and outages may overlap."""
    mine = claim("me")
    with store.unavailable("renew"), store.unavailable("release", after=True):
        await store.acquire(mine, lease=LEASE)
        with pytest.raises(LockStoreUnavailable):
            await store.renew(mine, lease=LEASE)
        with pytest.raises(LockStoreUnavailable):
            await store.release(mine)
    assert await held_by(store) == 0
