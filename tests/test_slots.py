"""Permits for waiters: how many the supplier issues, and to whom it goes on."""

import asyncio
from typing import Any
from unittest.mock import sentinel

from temporalio.worker import SlotReleaseContext

from lock_interceptor.room import WaitingRoom
from lock_interceptor.worker.slots import PermitsBesideWaiters

CONTEXT: Any = sentinel.context


def release(permits: PermitsBesideWaiters) -> None:
    permits.release_slot(SlotReleaseContext(None, sentinel.permit))


async def is_served(task: "asyncio.Task[Any]") -> bool:
    """Whether the call has its permit, once everything that is under way has happened."""
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


async def test_limit_holds_without_waiters() -> None:
    """As many permits as the user allows, and one more for each that comes back."""
    permits = PermitsBesideWaiters(2, WaitingRoom(10))
    await permits.reserve_slot(CONTEXT)
    await permits.reserve_slot(CONTEXT)
    third = asyncio.create_task(permits.reserve_slot(CONTEXT))

    assert not await is_served(third)
    assert permits.try_reserve_slot(CONTEXT) is None
    release(permits)
    assert await is_served(third)


async def test_each_waiter_gives_one_more_permit() -> None:
    """A waiter does not count, up to the size of the room; when it stops waiting it counts again."""
    room = WaitingRoom(1)
    permits = PermitsBesideWaiters(1, room)
    await permits.reserve_slot(CONTEXT)
    second = asyncio.create_task(permits.reserve_slot(CONTEXT))
    assert not await is_served(second)

    seat = room.enter(1)
    assert await is_served(second)
    room.enter(2, stays=True)
    assert permits.try_reserve_slot(CONTEXT) is None

    assert seat is not None
    room.leave(seat)
    release(permits)
    third = asyncio.create_task(permits.reserve_slot(CONTEXT))
    assert await is_served(third)


async def test_permits_go_to_who_asked_first() -> None:
    """Calls are answered in order."""
    permits = PermitsBesideWaiters(1, WaitingRoom(10))
    await permits.reserve_slot(CONTEXT)
    calls = [asyncio.create_task(permits.reserve_slot(CONTEXT)) for _ in range(3)]

    for number, call in enumerate(calls):
        assert [other.done() for other in calls] == [n < number for n in range(3)]
        release(permits)
        assert await is_served(call)


async def test_cancelled_call_loses_no_permit() -> None:
    """A call that is cancelled, even after a permit was promised to it, leaves the permit to the next."""
    permits = PermitsBesideWaiters(1, WaitingRoom(10))
    await permits.reserve_slot(CONTEXT)
    first, second = (asyncio.create_task(permits.reserve_slot(CONTEXT)) for _ in range(2))
    assert not await is_served(first)

    release(permits)
    first.cancel()

    assert await is_served(second)
    assert first.cancelled()
    assert second.exception() is None


async def test_release_from_another_thread_is_heard() -> None:
    """Temporal gives permits back from threads of its own."""
    permits = PermitsBesideWaiters(1, WaitingRoom(10))
    await permits.reserve_slot(CONTEXT)
    call = asyncio.create_task(permits.reserve_slot(CONTEXT))
    assert not await is_served(call)

    await asyncio.to_thread(release, permits)

    await asyncio.wait_for(call, 10)
