"""What Temporal does to an activity that waits, and what then becomes of its place in line."""

import asyncio
import contextlib
import time
from datetime import timedelta
from uuid import uuid4

import pytest
from activity_operations import pause, reset, tokens_of, unpause, until_line, until_paused
from stage import Kind, Stage, until
from temporalio import activity
from temporalio.client import ActivityFailureError, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, CancelledError

from lock_interceptor import needs_lock
from lock_interceptor.store import WaiterState

HEARTBEAT = 4
"""Seconds: time for the first body of a process pool to begin, since nobody heartbeats until then."""
TWO_PERMITS = {"max_concurrent_activities": 2}


@activity.defn
@needs_lock(lock_name="lock")
async def locked() -> str:
    return "done"


async def test_terminated(stage: Stage, kind: Kind) -> None:
    """An activity whose workflow is terminated waits no more, and its place is in no one's way."""
    async with stage.worker(kind=kind):
        async with stage.somebody_else():
            ended = await stage.start(kind, stage.play(), heartbeat=HEARTBEAT)
            await stage.until_waiting(1)
            await ended.terminate()
            await until_line(stage, (ended, False))
            behind = await stage.start(kind, stage.play(name="behind-"))
            await until_line(stage, (ended, False), (behind, True))
        await tokens_of(behind)
    assert all(note.name.startswith("behind-") for note in stage.scene.iterdir())
    stage.forget()


async def test_reset(stage: Stage, kind: Kind) -> None:
    """An activity that is reset comes back as its first attempt, and to its old place."""
    async with stage.worker(kind=kind):
        async with stage.somebody_else():
            first = await stage.start(kind, stage.play(name="first-"), heartbeat=HEARTBEAT)
            await stage.until_waiting(1)
            second = await stage.start(kind, stage.play(name="second-"), heartbeat=HEARTBEAT)
            before = await until_line(stage, (first, True), (second, True))

            await reset(stage, first)

            async def failed_and_returned() -> list[WaiterState] | None:
                info = await stage.pending(first)
                assert info is not None
                failed = info.HasField("last_failure") or info.attempt != 1
                line = (await stage.state()).waiters
                return list(line) if failed and all(waiter.present for waiter in line) else None

            after = await until(failed_and_returned, "the first attempt after the reset")
            assert [waiter.waiter for waiter in after] == [waiter.waiter for waiter in before]
        tokens = await tokens_of(first, second)
        assert tokens == sorted(tokens)


async def test_paused(stage: Stage, kind: Kind) -> None:
    """While it is paused an activity has its place, but neither a permit nor the lock; then it goes on."""
    patient = stage.with_settings(max_waiters=2)
    # room for all but the paused one
    async with patient.worker(kind=kind, **TWO_PERMITS):
        async with stage.somebody_else():
            paused = await stage.start(kind, stage.play(name="paused-"), heartbeat=HEARTBEAT)
            await stage.until_waiting(1)
            second = await stage.start(kind, stage.play(name="second-", waits=True))
            before = await until_line(stage, (paused, True), (second, True))
            await pause(stage, paused)
            await until_paused(stage, paused)
            await until_line(stage, (paused, False), (second, True))
            third = await stage.start(kind, stage.play(name="third-", waits=True))
            await until_line(stage, (paused, False), (second, True), (third, True))

        await stage.saw("second-began1")  # although it was behind the paused one
        stage.cue("second-go")
        await stage.saw("third-began1")
        await second.result()
        (during,) = await until_line(stage, (paused, False))

        await unpause(stage, paused)
        (after,) = await until_line(stage, (paused, True))
        assert before[0].waiter == during.waiter == after.waiter
        stage.cue("third-go")
        await asyncio.gather(third.result(), paused.result())


async def test_unpaused_to_its_old_place(stage: Stage, kind: Kind) -> None:
    """After a pause an activity is before those that came later."""
    async with stage.worker(kind=kind):
        async with stage.somebody_else():
            paused = await stage.start(kind, stage.play(name="paused-"), heartbeat=HEARTBEAT)
            await stage.until_waiting(1)
            later = await stage.start(kind, stage.play(name="later-"))
            await until_line(stage, (paused, True), (later, True))
            await pause(stage, paused)
            await until_line(stage, (paused, False), (later, True))
            await until_paused(stage, paused)
            await unpause(stage, paused)
            await until_line(stage, (paused, True), (later, True))
        tokens = await tokens_of(paused, later)
        assert tokens == sorted(tokens)


async def test_paused_while_parked(stage: Stage) -> None:
    """An activity that is paused between two attempts goes on from its old place, too."""
    alone = stage.with_settings(max_waiters=1)
    async with alone.worker(locked):
        async with stage.somebody_else():
            hot = await stage.start("locked", heartbeat=HEARTBEAT)
            await stage.until_waiting(1)
            parked = await stage.start("locked", heartbeat=HEARTBEAT)
            await until_line(stage, (hot, True), (parked, False))
            await pause(stage, parked)
            await until_paused(stage, parked)
            attempts = (await until_paused(stage, parked)).attempt
            await hot.cancel()
            await until_line(stage, (parked, False))
            await unpause(stage, parked)
            (back,) = await until_line(stage, (parked, True))
            assert back.party.attempt >= attempts
        assert await parked.result() == "done"


async def test_cancelled_while_parked(stage: Stage) -> None:
    """A cancel between two attempts counts at once, and the place that is left keeps nobody waiting."""
    alone = stage.with_settings(max_waiters=1, retry_interval=timedelta(minutes=1))
    async with alone.worker(locked):
        async with stage.somebody_else():
            parked = await stage.start("locked")
            await stage.until_waiting(1)
            # who is nearer to the front takes the only seat
            nearer = await stage.start("locked", priority=1)
            await until_line(stage, (nearer, True), (parked, False))
            later = await stage.start("locked", priority=2)
            await until_line(stage, (nearer, True), (later, False), (parked, False))
            for handle in (parked, later):
                await handle.cancel()
                with pytest.raises(WorkflowFailureError) as caught:
                    await asyncio.wait_for(handle.result(), 10)
                assert isinstance(caught.value.cause, CancelledError)
        assert await asyncio.wait_for(nearer.result(), 10) == "done"
        # those that are gone stand before it
        assert await asyncio.wait_for(stage.run("locked", priority=5), 10) == "done"
    stage.forget()


async def test_yields_no_later_than_the_deadline(stage: Stage) -> None:
    """No delay between attempts fails an activity before its schedule-to-close: it waits until then."""
    impatient = stage.with_settings(max_wait=timedelta(milliseconds=200))
    async with impatient.worker(locked), stage.somebody_else():
        started = time.monotonic()
        handle = await stage.start("locked", schedule_to_close=4)
        delays: list[float] = []
        with contextlib.suppress(WorkflowFailureError):
            result = asyncio.ensure_future(handle.result())
            while not result.done():
                info = await stage.pending(handle)
                failure = info.last_failure.application_failure_info if info else None
                if failure is not None and failure.HasField("next_retry_delay"):
                    delays.append(failure.next_retry_delay.ToTimedelta().total_seconds())
                await asyncio.wait([result], timeout=0.05)
            await result
        took = time.monotonic() - started
    assert delays
    assert max(delays) <= 2
    assert took > 3
    await stage.until_empty()


@pytest.mark.parametrize("listed", ["LockNotAcquired", "LockStoreUnavailable"])
async def test_not_to_be_retried(stage: Stage, listed: str) -> None:
    """Who lists our error as not retryable has the activity fail with the first attempt that yields."""
    policy = RetryPolicy(non_retryable_error_types=[listed], initial_interval=timedelta(milliseconds=100))
    where = {"redis_url": None, "redis_host": "127.0.0.1", "redis_port": 1, "lease": timedelta(seconds=1)}
    odd = stage if listed == "LockNotAcquired" else stage.with_settings(**where)
    async with odd.worker(locked), stage.somebody_else():
        with pytest.raises(ActivityFailureError) as caught:
            await stage.client.execute_activity(
                locked,
                id=f"activity-{uuid4()}",
                task_queue=stage.task_queue,
                schedule_to_close_timeout=timedelta(seconds=30),
                start_to_close_timeout=timedelta(seconds=1),
                retry_policy=policy,
            )
        assert (await stage.state()).waiting == 0
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.type == listed
