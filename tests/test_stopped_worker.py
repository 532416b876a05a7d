"""A worker process that is stopped for two leases while it holds a lock, and then just goes on."""

import time
from datetime import timedelta

import pytest
from fenced_resource import FencedResource
from redis_tools import new_claim, take
from stage import Stage, until
from worker_process import stopped, worker_process

from lock_interceptor.store import Granted

LEASE = 2.0


@pytest.mark.parametrize("activity", ["write_in_coroutine", "write_in_thread"])
async def test_stopped_while_holding(stage: Stage, activity: str) -> None:
    """It ends with `LockLost` and not with success, and what it still writes is refused by its token."""
    resource = FencedResource(stage.scene)
    with worker_process(stage, "fenced_worker.py", LOCK_LEASE_SECONDS=str(LEASE)) as process:
        async with stage.worker():
            handle = await stage.start(activity, stage.play(waits=True))
            first = int((await stage.saw("began1")).split()[0])
            assert [holder.token for holder in (await stage.state("fenced")).holders] == [first]
            with stopped(process):
                since = time.monotonic()
                other = new_claim(stage.lock("fenced"))

                async def granted() -> Granted | None:
                    answer = await stage.store.acquire(other, lease=timedelta(seconds=30))
                    return answer if isinstance(answer, Granted) else None

                newer = (await until(granted, "the end of the lease")).token
                assert newer > first
                assert resource.write(newer)
                stage.cue("go1")  # the first thing that the body sees when it goes on
                await until(lambda: time.monotonic() > since + 2 * LEASE, "two leases")
            failed = await stage.failed_attempt(handle, "LockLost")
            assert not failed.last_failure.application_failure_info.non_retryable
            if activity == "write_in_thread":  # which nothing stops, so that it writes
                assert await stage.saw("wrote1") == "refused"
            written = stage.scene / "wrote1"
            assert not written.exists() or written.read_text() == "refused"
            assert resource.tokens() == [newer]
            await stage.store.release(other)
            stage.cue()
            last = int((await handle.result()).split()[0])
    assert resource.tokens() == [newer, last]
    assert last > newer


async def test_the_resource_can_be_trusted(stage: Stage) -> None:
    """Holders write in the order of their tokens, as often as they like, and nobody after a newer one."""
    resource, tokens = FencedResource(stage.scene), []
    for _ in range(2):
        claim = new_claim(stage.lock("fenced"))
        tokens.append((await take(stage.store, claim)).token)
        await stage.store.release(claim)
    assert [resource.write(token) for token in (tokens[0], tokens[0], tokens[1])] == [True] * 3
    assert not resource.write(tokens[0])
    assert resource.write(tokens[1])
    assert resource.tokens() == [tokens[0], tokens[0], tokens[1], tokens[1]]
