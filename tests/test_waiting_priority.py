"""The order in which those that wait get a lock: Temporal's priority key, then the time of arrival."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from activity_operations import Handle, until_line
from stage import Stage
from temporalio import activity

from lock_interceptor import needs_lock

PRIORITIES = [5, None, 1, 3, 1]
"""In the order of arrival; none is as good as 3."""
IN_ORDER = [2, 4, 1, 3, 0]


@pytest.fixture
def order() -> list[int]:
    """The numbers of the activities that ran."""
    return []


@pytest.fixture
def noting(order: list[int]) -> Callable[..., Any]:
    """An activity that needs the lock and notes its number."""

    @activity.defn(name="noting")
    @needs_lock(lock_name="lock")
    async def noting(number: int) -> None:
        order.append(number)

    return noting


async def stand_in_line(stage: Stage, *, hot: int | None = None) -> list[Handle]:
    """Start one activity for each priority, each when the one before is in line; so many wait hot, or all."""
    handles: list[Handle] = []
    for number, priority in enumerate(PRIORITIES):
        handles.append(await stage.start("noting", number, priority=priority))
        in_line = [index for index in IN_ORDER if index <= number]
        await until_line(
            stage, *((handles[index], hot is None or place < hot) for place, index in enumerate(in_line))
        )
    return handles


async def finish(handles: list[Handle]) -> None:
    """Wait for the ends of the workflows."""
    await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 30)


async def test_after_a_restart_of_the_worker(
    stage: Stage, noting: Callable[..., Any], order: list[int]
) -> None:
    """Priority and arrival count among those that were parked with their worker, too."""
    async with stage.somebody_else() as guarding:
        async with stage.worker(noting):
            handles = await stand_in_line(stage)
        await until_line(stage, *((handles[number], False) for number in IN_ORDER))
        async with stage.worker(noting):
            await until_line(stage, *((handles[number], True) for number in IN_ORDER))
            await stage.store.release(guarding)
            await finish(handles)
    assert order == IN_ORDER


async def test_who_comes_first_has_the_seat(
    stage: Stage, noting: Callable[..., Any], order: list[int]
) -> None:
    """Where few may wait in the worker it is those whose turn is next, and they make the others park."""
    async with stage.with_settings(max_waiters=2).worker(noting):
        await stage.run("noting", 0)  # the lock is usually given back soon, so who is parked comes back soon
        order.clear()
        async with stage.somebody_else():
            handles = await stand_in_line(stage, hot=2)
        await finish(handles)
    assert order[:2] == IN_ORDER[:2]
    assert sorted(order) == sorted(IN_ORDER)
