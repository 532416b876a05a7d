"""What a locked activity shows while it waits, and how contention can end it."""

import asyncio
import re
from datetime import timedelta

import pytest
from stage import Stage
from temporalio import activity
from temporalio.api.enums.v1 import ApplicationErrorCategory
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

from lock_interceptor import needs_lock

BENIGN = ApplicationErrorCategory.APPLICATION_ERROR_CATEGORY_BENIGN


@activity.defn
@needs_lock(lock_name="lock")
async def locked() -> str:
    return "done"


@activity.defn
@needs_lock(lock_name="wide", max_locks=2, key=lambda region: region)
async def keyed(region: str) -> str:
    return region


def impatient(stage: Stage) -> Stage:
    """A stage whose attempts yield soon."""
    return stage.with_settings(max_wait=timedelta(milliseconds=200))


async def activity_failure(handle) -> ActivityError:
    """The failure of the workflow's activity."""
    with pytest.raises(WorkflowFailureError) as caught:
        await asyncio.wait_for(handle.result(), 20)
    assert isinstance(caught.value.cause, ActivityError)
    return caught.value.cause


async def test_failure_says_who_holds_the_lock(stage: Stage) -> None:
    """The waiting activity shows lock, count, limit, place and holders, and is no cause for alarm."""
    stage = impatient(stage)
    async with (
        stage.worker(keyed),
        stage.somebody_else("wide", "eu", limit=2),
        stage.somebody_else("wide", "eu", limit=2),
    ):
        handle = await stage.start("keyed", "eu")
        failure = (await stage.failed_attempt(handle, "LockNotAcquired")).last_failure

        who = r"workflow somebody-else, activity guarding \(7\) since \d+ s"
        assert re.fullmatch(
            rf"lock wide\[eu\]: 2 of 2 held, place 1 in line; held by {who}, {who}", failure.message
        )
        assert failure.application_failure_info.category == BENIGN
        assert not failure.application_failure_info.non_retryable
        await handle.terminate()
    stage.forget()


@pytest.mark.parametrize("retry_interval", [0.1, 300])
async def test_who_is_next_comes_back_soon(stage: Stage, retry_interval: float) -> None:
    """The next attempt of a waiter at the front comes as soon as the server can."""
    stage = impatient(stage).with_settings(retry_interval=timedelta(seconds=retry_interval))
    async with stage.worker(locked), stage.somebody_else():
        handle = await stage.start("locked", schedule_to_close=60)
        failure = (await stage.failed_attempt(handle, "LockNotAcquired")).last_failure
        delay = failure.application_failure_info.next_retry_delay.ToTimedelta().total_seconds()
        assert delay == 1
        await handle.terminate()
    stage.forget()


async def test_schedule_to_close_runs_out(stage: Stage) -> None:
    """Contention may last until the timeout; the failure then tells who held the lock."""
    async with stage.worker(locked), stage.somebody_else():
        error = await activity_failure(await stage.start("locked", schedule_to_close=2))

    assert error.retry_state == RetryState.TIMEOUT
    assert isinstance(error.cause, ApplicationError)
    assert error.cause.type == "LockNotAcquired"
    assert "held by workflow somebody-else, activity guarding" in error.cause.message


@pytest.mark.parametrize("attempts", [1, 3])
async def test_attempts_run_out(stage: Stage, attempts: int) -> None:
    """Limited attempts fail the activity once all of them have waited; each waits half its time."""
    async with stage.worker(locked), stage.somebody_else():
        handle = await stage.start("locked", start_to_close=1, attempts=attempts)
        started = asyncio.get_running_loop().time()
        error = await activity_failure(handle)

    assert asyncio.get_running_loop().time() - started >= 0.5 * attempts
    assert error.retry_state == RetryState.MAXIMUM_ATTEMPTS_REACHED
    assert isinstance(error.cause, ApplicationError)
    assert error.cause.type == "LockNotAcquired"
    assert "held by workflow somebody-else" in error.cause.message


@pytest.mark.parametrize("attempts", [1, 3])
async def test_limited_attempts_still_get_the_lock(stage: Stage, attempts: int) -> None:
    """An activity with few attempts gets its lock if it is free before they have run out."""
    async with stage.worker(locked):
        async with stage.somebody_else():
            handle = await stage.start("locked", start_to_close=20, attempts=attempts)
            await stage.until_waiting(1)
        assert await handle.result() == "done"


async def test_priority_goes_before_arrival(stage: Stage) -> None:
    """Temporal's own priority key decides among those that wait, and then the time of arrival."""
    order = []

    @activity.defn
    @needs_lock(lock_name="lock")
    async def in_order(name: str) -> None:
        order.append(name)

    async with stage.worker(in_order):
        async with stage.somebody_else():
            handles = []
            for place, (name, priority) in enumerate(
                [("late", 5), ("usual", None), ("also", 3), ("first", 1)]
            ):
                handles.append(await stage.start("in_order", name, priority=priority))
                await stage.until_waiting(place + 1)
        await asyncio.gather(*(handle.result() for handle in handles))
    assert order == ["first", "usual", "also", "late"]


async def test_busy_fails_at_once_where_asked_for(stage: Stage) -> None:
    """With on_conflict="fail" a lock that is not free fails the activity for good, and nothing queues."""

    @activity.defn
    @needs_lock(lock_name="lock", on_conflict="fail")
    async def never_twice() -> None:
        raise AssertionError("it must not run")

    async with stage.worker(never_twice), stage.somebody_else():
        error = await activity_failure(await stage.start("never_twice"))
        assert (await stage.state()).waiting == 0

    assert isinstance(error.cause, ApplicationError)
    assert (error.cause.type, error.cause.non_retryable) == ("LockBusy", True)
    assert error.cause.message == "lock lock is not free: 1 of 1 held"
