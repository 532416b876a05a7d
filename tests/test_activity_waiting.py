"""What happens to a locked activity before its body begins, for each kind."""

import asyncio
from datetime import timedelta

import pytest
from stage import Kind, Stage, until
from temporalio import activity
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import CancelledError

from lock_interceptor import needs_lock

AT_ONCE = timedelta(0)
SECONDS = timedelta(seconds=10)


async def test_waits_for_its_turn(stage: Stage, kind: Kind) -> None:
    """While somebody else holds the lock the body does not begin; once it is free it begins at once."""
    patient = stage.with_settings(retry_interval=timedelta(minutes=1))
    async with patient.worker(kind=kind):
        async with stage.somebody_else():
            handle = await stage.start(kind, stage.play())
            await stage.until_waiting(1)
            assert not list(stage.scene.iterdir())
        # long before the next poll
        await asyncio.wait_for(handle.result(), 10)


async def test_cancelled_while_waiting(stage: Stage, kind: Kind) -> None:
    """A cancel ends the wait and clears the place in line; the body never begins."""
    async with stage.worker(kind=kind), stage.somebody_else():
        handle = await stage.start(kind, stage.play(), heartbeat=1)
        await stage.until_waiting(1)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()

        assert isinstance(caught.value.cause, CancelledError)
        assert "ACTIVITY_TASK_CANCELED" in await stage.events(handle)
        state = await stage.state()
        assert (state.waiting, len(state.holders)) == (0, 1)
        assert not list(stage.scene.iterdir())


@pytest.mark.parametrize("graceful", [AT_ONCE, SECONDS], ids=["at once", "gracefully"])
async def test_worker_shut_down_while_waiting(stage: Stage, kind: Kind, graceful: timedelta) -> None:
    """The shutdown is not held up, and another worker goes on with the same place in line."""
    async with stage.somebody_else() as guarding:
        async with stage.worker(kind=kind, graceful_shutdown_timeout=graceful):
            first = await stage.start(kind, stage.play(name="first-"))
            await stage.until_waiting(1)
            second = await stage.start(kind, stage.play(name="second-"))
            line = await stage.until_waiting(2)
            shutdown = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - shutdown < SECONDS.total_seconds() / 2
        parked = await stage.until_waiting(2, present=False)
        assert [waiter.waiter for waiter in parked.waiters] == [waiter.waiter for waiter in line.waiters]

        async with stage.worker(kind=kind):
            back = await stage.until_waiting(2)
            assert [waiter.waiter for waiter in back.waiters] == [waiter.waiter for waiter in line.waiters]
            assert {waiter.party.attempt for waiter in back.waiters} == {2}
            await stage.store.release(guarding)
            results = [int((await handle.result()).split()[0]) for handle in (first, second)]
            assert results == sorted(results)


async def test_timed_out_while_waiting(stage: Stage, kind: Kind) -> None:
    """No attempt waits into its start-to-close timeout: it yields before, and keeps its place."""
    async with stage.worker(kind=kind):
        async with stage.somebody_else():
            handle = await stage.start(kind, stage.play(), start_to_close=1)
            info = await stage.failed_attempt(handle, "LockNotAcquired")
            assert info.attempt > 1
        await handle.result()
        assert "ACTIVITY_TASK_TIMED_OUT" not in await stage.events(handle)


async def test_checkpoint_survives_waiting(stage: Stage) -> None:
    """What an attempt heartbeats is still there after an attempt that only waited."""
    seen, failing = [], asyncio.Event()

    @activity.defn
    @needs_lock(lock_name="lock")
    async def with_checkpoint() -> list[object]:
        info = activity.info()
        seen.append(info.attempt)
        if info.attempt == 1:
            activity.heartbeat("page", 42)
            await failing.wait()
            raise RuntimeError("after the checkpoint")
        return list(info.heartbeat_details)

    async with stage.worker(with_checkpoint):
        handle = await stage.start("with_checkpoint", start_to_close=4, heartbeat=2)
        await until(lambda: seen, "the first attempt")
        async with stage.somebody_in_line():
            failing.set()
            await stage.failed_attempt(handle, "LockNotAcquired")
        assert await handle.result() == ["page", 42]
    assert seen == [1, 3]
