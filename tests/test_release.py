"""Giving the lock back, and keeping it, when something else happens at the same time."""

import asyncio
import contextvars
import time
from collections import Counter
from datetime import timedelta

from proxy import TcpProxy
from pydantic import SecretStr
from stage import Stage, until
from structlog.testing import capture_logs
from temporalio import activity

from lock_interceptor import LockInterceptor, current_lease, needs_lock
from lock_interceptor.store import Claim

LEASE = timedelta(seconds=1.5)


async def test_cancel_while_giving_back(stage: Stage) -> None:
    """A cancel that comes when the body is done already does not undo what it did."""
    bodies: list[contextvars.Context] = []
    releasing, go_on = asyncio.Event(), asyncio.Event()
    interceptor, loop = LockInterceptor(stage.settings), asyncio.get_running_loop()
    release = interceptor.store.release

    @activity.defn
    @needs_lock(lock_name="lock")
    async def quick() -> str:
        bodies.append(contextvars.copy_context())
        return "the result"

    async def slowly(claim: Claim) -> bool:
        loop.call_soon_threadsafe(releasing.set)
        while not go_on.is_set():  # noqa: ASYNC110 - the event is another loop's
            await asyncio.sleep(0.01)
        return await release(claim)

    interceptor.store.release = slowly
    at_once = timedelta(0)
    async with stage.worker(quick, interceptors=[interceptor], graceful_shutdown_timeout=at_once) as worker:
        handle = await stage.start("quick")
        await releasing.wait()
        shutdown = asyncio.ensure_future(worker.shutdown())
        await until(lambda: bodies[0].run(activity.is_cancelled), "the cancel")
        go_on.set()
        await shutdown
    await interceptor.close()

    async with stage.worker(quick):
        assert await handle.result() == "the result"
    assert len(bodies) == 1


async def test_redis_is_gone_while_giving_back(stage: Stage) -> None:
    """The result is not affected, and the slot returns at the end of the lease."""
    with TcpProxy(stage.redis.port) as proxy:

        @activity.defn
        @needs_lock(lock_name="lock")
        async def quick() -> float:
            if not ended:
                proxy.black_hole()
            return time.monotonic()

        ended: list[float] = []
        behind = stage.with_settings(redis_url=SecretStr(proxy.url()), lease=2 * LEASE)
        with capture_logs() as logs:
            async with behind.worker(quick):
                ended.append(await behind.run("quick"))
                assert len((await stage.state()).holders) == 1
            told = Counter(entry["event"] for entry in logs)
            assert (told["lock.release_failed"], told["lock.released"]) == (1, 0)

    async with stage.worker(quick):
        began_next = await stage.run("quick")
    assert 0.5 < (began_next - ended[0]) / (2 * LEASE.total_seconds()) < 1.5


async def test_event_loop_is_blocked(stage: Stage) -> None:
    """A body that blocks the worker's event loop for three leases keeps its lock all the while."""
    stage = stage.with_settings(lease=LEASE)
    lost: list[bool] = []

    @activity.defn
    @needs_lock(lock_name="lock")
    async def blocking() -> None:
        time.sleep(3.3 * LEASE.total_seconds())  # noqa: ASYNC251 - the mistake that this is about
        lost.append(current_lease().lost)

    async with stage.worker(blocking):
        await stage.run("blocking")
    assert lost == [False]
