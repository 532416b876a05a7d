"""Attempts that find no place for their bodies: what they ask the store for, and when."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from flaky_store import FlakyStore
from patience import Patient
from redis_tools import new_claim
from stage import until

from lock_interceptor import LockNotAcquired
from lock_interceptor.guard import Guard
from lock_interceptor.keeper import LeaseKeeper
from lock_interceptor.lease import Lease
from lock_interceptor.places import BodyPlace, Places
from lock_interceptor.room import WaitingRoom
from lock_interceptor.store import Granted, LockId
from lock_interceptor.terms import Want
from lock_interceptor.waiting import Allowance
from lock_interceptor.watchdog import Watchdog

LOCK = LockId("app", "lock")
LEASE = timedelta(minutes=10)


class Scene:
    """A worker with one place for bodies, and a store in memory."""

    INTERVAL = timedelta(minutes=1)

    def __init__(self, store: FlakyStore, keeper: LeaseKeeper) -> None:
        self.store = store
        self.places = Places(1)
        self.room = WaitingRoom(100)
        minute = timedelta(minutes=1)
        self._guard = Guard(store, keeper, self.room, retry_interval=self.INTERVAL, max_wait=minute)
        self.ran: list[int] = []

    def occupied(self) -> BodyPlace:
        """The place, with a body in it."""
        body = BodyPlace(self.places)
        assert body.take()
        body.run()
        return body

    async def run(self, number: int, *, attempt: Patient | None = None, **how: Any) -> None:
        """One attempt, as a worker runs it."""
        place = BodyPlace(self.places)

        async def body(leases: tuple[Lease, ...], watchdog: Watchdog) -> None:
            del leases, watchdog
            assert self.places.taken == 1
            self.ran.append(number)

        claim = replace(new_claim(LOCK), waiter=uuid4().hex)
        try:
            await self._guard.run([Want(claim=claim, lease=LEASE, **how)], attempt or Patient(), body, place)
        finally:
            place.give_back()

    async def in_line(self, count: int, *, present: bool) -> None:
        """Wait until so many stand in line, all present or all parked."""

        async def they_stand() -> bool:
            waiters = (await self.store.inspect(LOCK)).waiters
            return [waiter.present for waiter in waiters] == [present] * count

        await until(they_stand, f"{count} in line")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    store = FlakyStore()
    keeper = LeaseKeeper(store)
    yield Scene(store, keeper)
    await keeper.close()


async def start(count: int, scene: Scene, *, present: bool, **how: Any) -> list["asyncio.Task[None]"]:
    """Start so many attempts, one after the other."""
    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(scene.run(number, **how)))
        await scene.in_line(number + 1, present=present)
    return tasks


async def test_a_request_for_each_place_and_not_for_each_waiter(scene: Scene) -> None:
    """While there is no place nobody polls; each place that is free is one waiter's request, in order."""
    blocking = scene.occupied()
    tasks = await start(20, scene, present=False)
    asked = scene.store.calls["acquire"]
    await asyncio.sleep(0.5)  # time to ask for whatever there might be to ask
    assert scene.store.calls["acquire"] == asked == 20
    blocking.give_back()
    await asyncio.gather(*tasks)
    assert scene.ran == list(range(20))
    assert scene.store.calls["acquire"] == 40


async def test_a_place_for_a_busy_lock_is_asked_for_once(scene: Scene) -> None:
    """Where the lock is held elsewhere the foremost waiter is present again, and the others stay parked."""
    blocking = scene.occupied()
    tasks = await start(5, scene, present=False)
    held = new_claim(LOCK)
    assert isinstance(await scene.store.acquire(held, lease=LEASE), Granted)
    blocking.give_back()

    async def one_is_present() -> bool:
        waiters = (await scene.store.inspect(LOCK)).waiters
        return [waiter.present for waiter in waiters] == [True, False, False, False, False]

    await until(one_is_present, "the first one present")
    assert scene.places.taken == 0
    await scene.store.release(held)
    await asyncio.gather(*tasks)
    assert scene.ran == list(range(5))


async def test_all_that_are_present_are_parked_by_one_call(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once one is called while bodies have all places, its fellows are parked without being woken each."""
    held = new_claim(LOCK)
    assert isinstance(await scene.store.acquire(held, lease=LEASE), Granted)
    tasks = await start(5, scene, present=True)
    blocking = scene.occupied()
    await scene.store.release(held)
    monkeypatch.setattr(scene.store, "_wake", lambda *_: None)
    await scene.in_line(5, present=False)
    monkeypatch.undo()
    assert not (await scene.store.inspect(LOCK)).holders
    blocking.give_back()
    await asyncio.gather(*tasks)
    assert scene.ran == list(range(5))


async def test_what_was_granted_unknown_to_us_is_given_back_without_a_place(scene: Scene) -> None:
    """A grant whose answer got lost is not kept by one that has no place any more."""
    scene.store.after["acquire"] = 1
    task = asyncio.create_task(scene.run(0))
    await until(lambda: scene.store.calls["acquire"] == 1, "the first request")
    await until(lambda: scene.places.taken == 0, "the place given back")
    blocking = scene.occupied()
    await scene.in_line(1, present=False)
    assert not (await scene.store.inspect(LOCK)).holders
    blocking.give_back()
    await task
    assert scene.ran == [0]


async def test_without_waiting_for_the_lock_it_waits_for_a_place(scene: Scene) -> None:
    """Nothing is asked before there is a place; without one in time the attempt ends to be retried."""
    blocking = scene.occupied()
    patient = asyncio.create_task(scene.run(1, fail_fast=True))
    short = Patient(allowance=Allowance(schedule_to_close=600, start_to_close=1))
    with pytest.raises(LockNotAcquired, match="no place"):
        await scene.run(2, fail_fast=True, attempt=short)
    assert scene.store.calls["acquire"] == 0
    blocking.give_back()
    await patient
    assert scene.ran == [1]


@pytest.mark.parametrize("when", ["in line", "handed"])
async def test_who_is_cancelled_takes_no_place_along(scene: Scene, when: str) -> None:
    """A place that was just handed to a waiter that is cancelled goes to the next one."""
    blocking = scene.occupied()
    first, second = await start(2, scene, present=False)
    if when == "handed":
        blocking.give_back()
        assert scene.places.taken == 1
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    blocking.give_back()
    await second
    assert first.cancelled()
    assert scene.ran == [1]
    assert scene.places.taken == 0
