"""With `LockPlugin` a waiter asks for its lock only while the worker has a permit for its body."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from load import Intervals
from placed_bodies import a_worker, begun, call, until_begun
from stage import Kind, Stage, until

SMALL_POOL = pytest.mark.filterwarnings("ignore:Worker max_concurrent_activities")


@pytest.mark.parametrize("of", ["thread", "process"])
async def test_no_more_bodies_than_permits(stage: Stage, kinds: dict[str, Kind], of: str) -> None:
    """Whatever comes and goes, with locks and without, in all kinds: no more bodies than the user allows."""
    queue, handles = stage.task_queue, []
    whats = ("plain", "locked", "locked_thrice", "plain_sync", "locked_sync", "locked_twice")
    async with a_worker(stage, "plugin", queue, kind=kinds[of], max_concurrent_activities=2):
        async with (
            stage.somebody_else(limit=3),
            stage.somebody_else(limit=3),
            stage.somebody_else(limit=3),
        ):
            handles += [await call(stage, queue, "locked_thrice", f"early{number}") for number in range(12)]
            await stage.until_waiting(12)
            handles += [await call(stage, queue, whats[number % 6], f"{number}") for number in range(60)]
        results = await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 50)
    assert len(results) == len(set(begun(stage))) == 72
    assert Intervals.of(stage.scene).most_at_once() <= 2


async def test_waiters_are_granted_no_more_than_there_are_permits(stage: Stage) -> None:
    """Waiters whose lock is free, while others run, are parked until there is a permit for their bodies."""
    queue = stage.task_queue
    async with (
        a_worker(stage, "plugin", queue, max_concurrent_activities=2),
        stage.somebody_else(limit=3) as guarding,
        stage.somebody_else(limit=3),
        stage.somebody_else(limit=3),
    ):
        waiting = [await call(stage, queue, "locked_thrice", f"waiter{number}") for number in range(4)]
        await stage.until_waiting(4)
        running = [await call(stage, queue, "plain", f"plain{number}", "end") for number in range(2)]
        await until_begun(stage, "plain0", "plain1")
        await stage.store.release(guarding)
        await stage.until_waiting(4, present=False)
        assert len((await stage.state()).holders) == 2
        assert sorted(begun(stage)) == ["plain0", "plain1"]
        stage.cue("end")
        await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in [*waiting, *running])), 30)
    assert Intervals.of(stage.scene).most_at_once() <= 2


async def test_order_is_kept_without_a_permit(stage: Stage) -> None:
    """Waiters that were parked for want of a permit go in their old order, and before who came later."""
    queue = stage.task_queue
    async with a_worker(stage, "plugin", queue, max_concurrent_activities=1):
        handles = []
        async with stage.somebody_else():
            for number in range(4):
                handles.append(await call(stage, queue, "locked", f"waiter{number}"))
                await stage.until_waiting(number + 1)
            handles.append(await call(stage, queue, "plain", "plain", "end"))
            await until_begun(stage, "plain")
        await stage.until_waiting(4, present=False)
        stage.cue("end")
        await until_begun(stage, "waiter0")
        handles.append(await call(stage, queue, "locked", "late"))
        await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 30)
    assert begun(stage) == ["plain", "waiter0", "waiter1", "waiter2", "waiter3", "late"]


async def test_a_waiter_without_a_permit_is_in_nobodys_way(stage: Stage) -> None:
    """Who is behind it in a worker with room goes first; its old place counts when it has room again."""
    full, other = stage.task_queue, f"other-{stage.task_queue}"
    async with (
        a_worker(stage, "plugin", full, max_concurrent_activities=1),
        a_worker(stage, "plugin", other, max_concurrent_activities=5),
    ):
        async with stage.somebody_else():
            handles = [await call(stage, full, "locked", "first")]
            await stage.until_waiting(1)
            handles += [await call(stage, other, "locked", "second", "end second")]
            await stage.until_waiting(2)
            handles += [await call(stage, other, "locked", "third")]
            await stage.until_waiting(3)
            handles += [await call(stage, full, "plain", "plain", "end")]
            await until_begun(stage, "plain")
        await until_begun(stage, "second")
        stage.cue("end")

        async def first_is_back() -> bool:
            waiters = (await stage.state()).waiters
            return len(waiters) == 2 and waiters[0].present

        await until(first_is_back, "the first one present again")
        stage.cue("end second")
        await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 30)
    assert begun(stage) == ["plain", "second", "first", "third"]


@SMALL_POOL
async def test_one_that_comes_without_room_has_its_place_in_line(stage: Stage) -> None:
    """An activity that finds its worker full stands in line from its first request on, and is not granted."""
    full, other = stage.task_queue, f"other-{stage.task_queue}"
    with ThreadPoolExecutor(1) as threads:
        kind = Kind("thread", lambda: None, threads)
        async with (
            a_worker(stage, "plugin", full, kind=kind, max_concurrent_activities=5),
            a_worker(stage, "plugin", other, max_concurrent_activities=5),
        ):
            handles = [await call(stage, full, "plain_sync", "plain", "end")]
            await until_begun(stage, "plain")
            handles += [await call(stage, full, "locked_sync", "first")]
            await stage.until_waiting(1, present=False)
            assert not (await stage.state()).holders
            handles += [await call(stage, other, "locked", "second", "end second")]
            await until_begun(stage, "second")
            handles += [await call(stage, other, "locked", "third")]
            await until(lambda: _waiting(stage, 2), "two in line")
            stage.cue("end")
            await until(lambda: _waiting(stage, 2, first_present=True), "the first one present")
            stage.cue("end second")
            await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 30)
    assert begun(stage) == ["plain", "second", "first", "third"]


async def _waiting(stage: Stage, count: int, *, first_present: bool = False) -> bool:
    waiters = (await stage.state()).waiters
    return len(waiters) == count and (waiters[0].present or not first_present)


async def test_one_permit_for_all_locks(stage: Stage) -> None:
    """An activity with several locks needs one permit, in a worker that has one."""
    queue = stage.task_queue
    async with a_worker(stage, "plugin", queue, max_concurrent_activities=1):
        handles = [
            await call(stage, queue, what, f"{what}{number}")
            for number in range(6)
            for what in ("locked_twice", "locked", "plain")
        ]
        await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 40)
    assert Intervals.of(stage.scene).most_at_once() == 1


@SMALL_POOL
async def test_one_that_does_not_wait_for_locks_waits_for_a_permit(stage: Stage) -> None:
    """With ``on_conflict="fail"`` a full worker is no busy lock: it asks when there is a permit."""
    queue = stage.task_queue
    with ThreadPoolExecutor(1) as threads:
        kind = Kind("thread", lambda: None, threads)
        async with a_worker(stage, "plugin", queue, kind=kind, max_concurrent_activities=5):
            handles = [await call(stage, queue, "plain_sync", "plain", "end")]
            await until_begun(stage, "plain")
            handles += [await call(stage, queue, "locked_or_fail_sync", "picky")]
            waited = await until(lambda: _attempts(handles[1]), "the first attempt", 20)
            assert waited == 1
            assert not (await stage.state()).holders
            stage.cue("end")
            assert await asyncio.wait_for(handles[1].result(), 30) == 1
            await handles[0].result()


async def _attempts(handle: object) -> int:
    description = await handle.describe()  # type: ignore[attr-defined]
    return int(description.attempt) if description.last_started_time else 0


async def test_one_that_a_waiter_went_before_heartbeats(stage: Stage) -> None:
    """An activity that came although a waiter has just taken the last permit waits, and stays alive."""
    queue = stage.task_queue
    async with a_worker(
        stage,
        "plugin",
        queue,
        max_concurrent_activities=1,
    ):
        async with stage.somebody_else():
            handles = [await call(stage, queue, "locked", "waiter", "end")]
            await stage.until_waiting(1)
        await until_begun(stage, "waiter")
        # a poller has had a permit since before
        handles += [await call(stage, queue, "plain", "plain", heartbeat=1)]
        if await until(lambda: _attempts(handles[1]), "its first attempt", 20):
            await asyncio.sleep(2.5)  # the time in which it would be given up
            assert begun(stage) == ["waiter"]
        stage.cue("end")
        assert await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 30) == [1, 1]
    assert Intervals.of(stage.scene).most_at_once() == 1
