"""How a locked activity ends, for each kind: its lock is free afterwards, the workflow sees the outcome."""

import asyncio

import pytest
from stage import Kind, Stage
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutType
from temporalio.exceptions import TimeoutError as TemporalTimeoutError


async def failure(handle_or_run) -> ActivityError:
    """The activity's failure, as the workflow saw it."""
    with pytest.raises(WorkflowFailureError) as caught:
        await handle_or_run
    assert isinstance(caught.value.cause, ActivityError)
    return caught.value.cause


async def test_success(stage: Stage, kind: Kind) -> None:
    """The result arrives, and the body knew its lease."""
    async with stage.worker(kind=kind):
        result = await stage.run(kind, stage.play())

    token, slot, lost = (await stage.saw("began1")).split()
    assert result == f"{token} {slot}"
    assert int(token) > 0
    assert (slot, lost) == ("0", "False")


async def test_failure(stage: Stage, kind: Kind) -> None:
    """The workflow sees the body's own error, unchanged."""
    async with stage.worker(kind=kind):
        error = (await failure(stage.run(kind, stage.play(fails=True), attempts=1))).cause

    assert isinstance(error, ApplicationError)
    assert (error.type, error.message) == ("ValueError", "the body's own error")
    # a process pool adds the traceback from the other process as the cause, with and without a lock
    assert kind.name == "process" or error.cause is None
    assert not error.non_retryable


async def test_lock_is_held_while_the_body_runs(stage: Stage, kind: Kind) -> None:
    """From before the first to after the last line of the body the lock is held, by name."""
    async with stage.worker(kind=kind):
        handle = await stage.start(kind, stage.play(waits=True))
        token, *_ = (await stage.saw("began1")).split()

        (holder,) = (await stage.state()).holders
        assert holder.token == int(token)
        assert holder.party.workflow == handle.id
        assert holder.party.workflow_type == "CallActivity"
        assert (holder.party.activity, holder.party.attempt) == (kind.activity, 1)

        stage.cue()
        await handle.result()


async def test_cancelled_while_running(stage: Stage, kind: Kind) -> None:
    """A cancel reaches the body as without a lock, and the workflow sees it."""
    async with stage.worker(kind=kind):
        handle = await stage.start(kind, stage.play(waits=True, heartbeats=True), heartbeat=5)
        await stage.saw("began1")
        await handle.cancel()

        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        assert "ACTIVITY_TASK_CANCELED" in await stage.events(handle)
        await stage.saw("cancelled1" if kind.name == "async" else "stopped1")


@pytest.mark.parametrize("timeout", ["start_to_close", "heartbeat"])
async def test_timed_out_while_running(stage: Stage, kind: Kind, timeout: str) -> None:
    """A body that outlives its timeout unnoticed keeps the lock; the next attempt is first in line for it."""
    async with stage.worker(kind=kind):
        play = stage.play(waits=True)
        handle = await stage.start(kind, play, **{"start_to_close": 20, timeout: 2})
        await stage.saw("began1")
        waiting = await stage.until_waiting(1)
        assert waiting.waiters[0].party.attempt > 1
        assert [holder.party.attempt for holder in waiting.holders] == [1]
        other = await stage.start(kind, stage.play(name="other-"))
        await stage.until_waiting(2)

        stage.cue()
        await asyncio.gather(handle.result(), other.result())
        (again,) = (path.name for path in stage.scene.glob("began[2-9]"))
        tokens = [int((await stage.saw(note)).split()[0]) for note in ("began1", again, "other-began1")]
        assert tokens == sorted(tokens)
        await stage.saw("done1")


async def test_told_of_its_timeout_while_running(stage: Stage, kind: Kind) -> None:
    """A body that heartbeats learns of its timeout and stops, and the workflow sees the timeout."""
    async with stage.worker(kind=kind):
        play = stage.play(waits=True, heartbeats=True)
        handle = await stage.start(kind, play, start_to_close=2, heartbeat=1, attempts=1)
        await stage.saw("began1")
        error = (await failure(handle.result())).cause

        assert isinstance(error, TemporalTimeoutError)
        assert error.type == TimeoutType.START_TO_CLOSE
        await stage.saw("cancelled1" if kind.name == "async" else "stopped1")
        await stage.until_empty()


async def test_worker_shut_down_while_running(stage: Stage, kind: Kind) -> None:
    """The body is stopped with its worker, the lock is free, and another worker runs the next attempt."""
    async with stage.worker(kind=kind, graceful_shutdown_timeout=0 * stage.settings.lease):
        play = stage.play(waits=True)
        handle = await stage.start(kind, play)
        await stage.saw("began1")
    assert not stage.members()

    stage.cue()
    async with stage.worker(kind=kind):
        await handle.result()
    await stage.saw("began2")
