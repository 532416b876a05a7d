"""Several locks on one activity: all or none."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from stage import Stage, until
from temporalio import activity

from lock_interceptor import current_lease, needs_lock

running: set[str] = set()
"""What the bodies of `up` and `down` see of each other."""


@activity.defn
@needs_lock(lock_name="cap", max_locks=2)
@needs_lock(lock_name="tenant", key=lambda *args: args[0])
async def capped(tenant: str, cue: str) -> list[str]:
    running.add(cue)
    await until(lambda: cue not in running, "the test's consent", 60)
    return [
        current_lease("cap").label,
        current_lease("tenant").label,
        current_lease(f"tenant[{tenant}]").label,
    ]


@activity.defn
@needs_lock(lock_name="account", key=lambda *args: args[0])
@needs_lock(lock_name="account", key=lambda *args: args[1])
async def transfer(source: str, target: str) -> list[str]:
    names = {f"account[{source}]", f"account[{target}]"}
    return sorted(current_lease(name).label for name in names)


@activity.defn
@needs_lock(lock_name="one")
@needs_lock(lock_name="two")
async def up() -> None:
    await _alone()


@activity.defn
@needs_lock(lock_name="two")
@needs_lock(lock_name="one")
async def down() -> None:
    await _alone()


async def _alone() -> None:
    assert "somebody" not in running
    running.add("somebody")
    await asyncio.sleep(0.002)
    running.remove("somebody")


@pytest.fixture(autouse=True)
def _nobody_runs() -> None:
    running.clear()


async def test_all_are_held_at_once(stage: Stage) -> None:
    """The body has a lease of each lock, told apart by name."""
    async with stage.worker(capped):
        handle = await stage.start("capped", "acme", "a")
        await until(lambda: "a" in running, "the body")

        assert len((await stage.state("cap")).holders) == 1
        assert len((await stage.state("tenant", "acme")).holders) == 1
        running.clear()
        assert await handle.result() == ["cap", "tenant[acme]", "tenant[acme]"]


async def test_locks_of_different_keys_are_independent(stage: Stage) -> None:
    """Two tenants run side by side; a second execution for the same tenant waits, and holds no cap."""
    async with stage.worker(capped):
        handles = [await stage.start("capped", "acme", "a"), await stage.start("capped", "zenith", "z")]
        await until(lambda: running == {"a", "z"}, "both tenants")
        handles.append(await stage.start("capped", "acme", "again"))

        running.remove("z")
        await handles[1].result()

        async def it_waits_for_its_tenant() -> bool:
            tenant, cap = await stage.state("tenant", "acme"), await stage.state("cap")
            return tenant.waiting == len(cap.holders) == 1 and not any(each.present for each in cap.waiters)

        await until(it_waits_for_its_tenant, "the third execution in line")
        async with stage.somebody_else("cap", limit=2):
            assert running == {"a"}
            running.remove("a")
            await until(lambda: running == {"again"}, "the third execution")
            running.clear()
        await asyncio.gather(*(handle.result() for handle in handles))


async def test_keys_that_come_out_equal_are_one_lock(stage: Stage) -> None:
    """Two keys of one name may be the same, which is held once; different ones are held both."""
    async with stage.worker(transfer):
        assert await stage.run("transfer", "a", "a") == ["account[a]"]
        assert await stage.run("transfer", "a", "b") == ["account[a]", "account[b]"]


@pytest.mark.parametrize("names", [("one", "two"), ("two", "one")])
async def test_opposite_orders_never_deadlock(stage: Stage, names: tuple[str, str]) -> None:
    """Activities that name the same locks in opposite order all get through under load, one at a time.

    They do not chase each other either, each with one lock in hand: a few requests do for each of them.
    """
    # so rarely that no poll is of help
    stage = stage.with_settings(retry_interval=timedelta(seconds=20))
    first, second = names
    async with stage.worker(up, down, max_concurrent_activities=50), contextlib.AsyncExitStack() as held:
        await held.enter_async_context(stage.somebody_else(second))
        await held.enter_async_context(stage.somebody_else(first))
        starts = (stage.start(name, start_to_close=100) for name in ["up", "down"] * 10)
        handles = await asyncio.gather(*starts)
        await stage.until_waiting(len(handles), "one")
        before = stage.requests()
        await held.aclose()
        await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 30)
        assert stage.requests() - before < 20 * len(handles)
