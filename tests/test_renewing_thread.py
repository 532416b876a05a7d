"""The thread that renews: when it does not start, when something is raised in it, and when it is closed."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from flaky_store import FlakyStore
from redis_tools import new_claim
from stage import until

from lock_interceptor.hold import Hold, margin
from lock_interceptor.keeper import LeaseKeeper
from lock_interceptor.lease import Lease, clock
from lock_interceptor.store import Claim, Granted

LENGTH = 1.0
NAME = "lock_interceptor.keeper"


class Store(FlakyStore):
    """Counts the renewals of each claim."""

    def __init__(self) -> None:
        super().__init__()
        self.renewed: dict[str, int] = {}
        self.raises: BaseException | None = None

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """See `LockStore.renew`."""
        error, self.raises = self.raises, None
        if error is not None:
            raise error
        self.renewed[claim.owner] = self.renewed.get(claim.owner, 0) + 1
        return await super().renew(claim, lease=lease)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def keeper(store: Store) -> AsyncIterator[LeaseKeeper]:
    keeper = LeaseKeeper(store)
    yield keeper
    await keeper.close()


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the next threads start, in turn; all others do."""
    outcomes: list[bool] = []
    start = threading.Thread.start

    def maybe(thread: threading.Thread) -> None:
        if thread.name == NAME and outcomes and not outcomes.pop(0):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", maybe)
    return outcomes


async def hold(store: Store, keeper: LeaseKeeper) -> Hold:
    """Take a new lock, and have it renewed."""
    claim, sent = new_claim(), clock()
    granted = await store.acquire(claim, lease=timedelta(seconds=LENGTH))
    assert isinstance(granted, Granted)
    lease = Lease("db", granted.token, 0, expires=sent + LENGTH - margin(LENGTH), deadline=sent + 600)
    held = Hold(claim, lease, LENGTH, lambda: None)
    keeper.keep(held)
    return held


async def renewed_for_two_leases(store: Store, held: Hold) -> None:
    """Wait until it has been renewed for so long."""
    before = store.renewed.get(held.claim.owner, 0)
    await until(lambda: store.renewed.get(held.claim.owner, 0) >= before + 6 or held.lease.lost, "renewals")
    assert not held.lease.lost


async def give_back(keeper: LeaseKeeper, *holds: Hold) -> None:
    for each in holds:
        assert await keeper.give_back(each, 10) is True


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


async def test_the_next_hold_starts_it(store: Store, keeper: LeaseKeeper, starts: list[bool]) -> None:
    """A thread that did not start is started with the next hold, and renews what was held before, too."""
    starts += [False]
    first = await hold(store, keeper)
    second = await hold(store, keeper)
    await renewed_for_two_leases(store, second)
    assert not first.lease.lost
    await give_back(keeper, first, second)


async def test_a_watchdog_starts_it(store: Store, keeper: LeaseKeeper, starts: list[bool]) -> None:
    """Without another hold the watchdog of the body tries again, several times within the lease."""
    starts += [False, False]
    only = await hold(store, keeper)
    with keeper.watchdog().watching([only]):
        await renewed_for_two_leases(store, only)
    await give_back(keeper, only)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_what_one_renewal_raises(store: Store, keeper: LeaseKeeper, error: BaseException) -> None:
    """Whatever a renewal raises is no answer: others go on in the same thread."""
    first, second = await hold(store, keeper), await hold(store, keeper)
    (thread,) = threads()
    store.raises = error
    await until(lambda: store.raises is None, "an error")
    with keeper.watchdog().watching([first, second]):
        await until(lambda: len(store.renewed) == 2 or first.lease.lost or second.lease.lost, "renewals")
    assert threads() == [thread]
    assert not (first.lease.lost and second.lease.lost)
    for each in (first, second):
        await keeper.give_back(each, 10)


async def test_what_a_callback_raises(store: Store, keeper: LeaseKeeper) -> None:
    """An exit in a callback of the loop, which ends a loop, ends nothing here."""
    held = await hold(store, keeper)

    def leave() -> None:
        raise SystemExit(1)

    (thread,) = threads()
    for _ in range(3):
        keeper._renewals.call_soon(leave)  # noqa: SLF001 - nobody else can raise there
    await renewed_for_two_leases(store, held)
    assert threads() == [thread]
    await give_back(keeper, held)


async def test_a_thread_that_is_gone(store: Store, keeper: LeaseKeeper) -> None:
    """A thread that ended, whatever ended it, is started anew, and closing does not stumble over it."""
    held = await hold(store, keeper)
    await renewed_for_two_leases(store, held)
    (thread,) = threads()
    for _ in range(2):
        keeper._renewals.call_soon(keeper._renewals._thread.end)  # type: ignore[union-attr]  # noqa: SLF001
        await until(lambda ended=thread: not ended.is_alive(), "an end of it")
        await keeper.close()
        with keeper.watchdog().watching([held]):
            await renewed_for_two_leases(store, held)
        (thread,) = threads()
    await give_back(keeper, held)


async def test_close_leaves_it_to_those_who_hold(store: Store, keeper: LeaseKeeper) -> None:
    """What is held when it is closed is renewed until it is given back; then the thread ends."""
    held = await hold(store, keeper)
    await renewed_for_two_leases(store, held)
    for _ in range(2):
        await keeper.close()
    await renewed_for_two_leases(store, held)
    await give_back(keeper, held)
    await until(lambda: not threads(), "an end of the thread")


async def test_held_again_after_close(store: Store, keeper: LeaseKeeper) -> None:
    """A lock that is taken after that, while another one is still held, keeps the thread in use."""
    first = await hold(store, keeper)
    await keeper.close()
    second = await hold(store, keeper)
    await give_back(keeper, first)
    await renewed_for_two_leases(store, second)
    await give_back(keeper, second)
    await keeper.close()
    assert not threads()


async def test_given_back_without_a_thread(
    store: Store, keeper: LeaseKeeper, starts: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that gets no answer is repeated where it was asked for, if no thread can be had."""
    starts += [False] * 1_000
    held = await hold(store, keeper)
    store.before["release"] = 2
    assert await keeper.give_back(held, 10) is True

    async def free() -> Any:
        return not (await store.inspect(held.claim.lock)).holders

    await until(free, "a free lock")
    starts.clear()
