"""A worker that forks, as a process pool with the fork method does: leases stay with the parent."""

import os
import subprocess
import sys

from redis_tools import open_store
from stage import until

from lock_interceptor.dev import RedisServer
from lock_interceptor.store import LockId

APPLICATION = "forked-worker"
PROGRAM = """
import asyncio, contextvars, multiprocessing, sys
from datetime import timedelta
from temporalio import activity
from lock_interceptor import LockSettings, RedisLockStore, current_lease, needs_lock
from lock_interceptor.testing import LockedActivityEnvironment

settings = LockSettings(redis_url=sys.argv[1], application_name=sys.argv[2], lease=timedelta(seconds=1))
environment = LockedActivityEnvironment(RedisLockStore(settings), settings)

@activity.defn
@needs_lock(key=lambda who, forks: who)
async def body(who, forks):
    if forks:  # now, when nobody has begun to renew
        # as a pool does that was made before: the child is no part of this attempt
        contextvars.Context().run(multiprocessing.get_context("fork").Process(target=in_child).start)
    while True:
        current_lease().raise_if_lost()
        await asyncio.sleep(0.02)

def in_child():
    asyncio.run(environment.run(body, "child", False))

asyncio.run(environment.run(body, "parent", True))
"""


async def test_a_child_renews_nothing_of_its_parent(valkey: RedisServer) -> None:
    """The parent is killed: its lock is free after a lease, though its child goes on with its own."""
    call = [sys.executable, "-c", PROGRAM, valkey.url, APPLICATION]
    process = subprocess.Popen(call, process_group=0)  # noqa: ASYNC220, S603 - at once, and ours
    async with open_store(valkey, application_name=APPLICATION) as store:

        async def holders() -> list[int]:
            states = [await store.inspect(LockId(APPLICATION, "body", key)) for key in ("parent", "child")]
            return [len(state.holders) for state in states]

        async def both_hold() -> bool:
            return await holders() == [1, 1]

        async def parent_does_not() -> bool:
            return await holders() == [0, 1]

        try:
            await until(both_hold, "a lock for each of them")
            process.kill()
            await until(parent_does_not, "an end of the parent's lease alone")
        finally:
            os.killpg(process.pid, 9)
            process.wait()
