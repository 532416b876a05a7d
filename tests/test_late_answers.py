"""Answers that come when their lease is over already: neither a grant nor a renewal."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from flaky_store import FlakyStore
from patience import waiting
from redis_tools import new_claim
from stage import until

from lock_interceptor.keeper import Hold, LeaseKeeper, margin
from lock_interceptor.lease import Lease, clock
from lock_interceptor.store import Claim, Granted, Queueing, Waiting

LENGTH = 0.5

Pause = Callable[[float], Awaitable[None]]


async def _stall(seconds: float) -> None:
    """As when the process is stopped: timeouts cannot fire, and the answer is there when it goes on."""
    time.sleep(seconds)  # noqa: ASYNC251 - that is what this is about


class LateStore(FlakyStore):
    """The first answer to an acquire, and to a renewal, is read when its lease is over."""

    def __init__(self, pause: Pause) -> None:
        super().__init__()
        self._pause = pause

    async def acquire(
        self, claim: Claim, *, lease: timedelta, queueing: Queueing | None = None
    ) -> Granted | Waiting:
        """See `LockStore.acquire`."""
        answer = await super().acquire(claim, lease=lease, queueing=queueing)
        if self.calls["acquire"] == 1:
            await self._pause(1.2 * LENGTH)
        return answer

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """See `LockStore.renew`."""
        answer = await super().renew(claim, lease=lease)
        await self._pause(1.2 * LENGTH)
        return answer


@pytest.mark.parametrize("pause", [asyncio.sleep, _stall])
async def test_a_late_grant_is_asked_for_again(pause: Pause) -> None:
    """The lock counts as held only by an answer that came in time, and from before that was asked for."""
    store = LateStore(pause)
    start = clock()
    async with waiting(store, new_claim(), lease=timedelta(seconds=LENGTH)) as granted:
        lease = (await granted).lease
        assert store.calls["acquire"] == 2
        assert not lease.lost
        assert lease.remaining <= LENGTH - margin(LENGTH)
        assert clock() - start > 1.2 * LENGTH


@pytest.mark.parametrize("pause", [asyncio.sleep, _stall])
async def test_a_late_renewal_is_a_loss(pause: Pause) -> None:
    """A lease that was over when the answer came does not come back, whatever the answer says."""
    store, lost = LateStore(pause), list[Any]()
    store.calls["acquire"] = 1
    claim, sent = new_claim(), clock()
    granted = await store.acquire(claim, lease=timedelta(seconds=LENGTH))
    assert isinstance(granted, Granted)
    expires = sent + LENGTH - margin(LENGTH)
    lease = Lease("lock", granted.token, granted.slot, expires=expires, deadline=sent + 60)
    keeper = LeaseKeeper(store)
    keeper.keep(Hold(claim, lease, LENGTH, lambda: lost.append(lease)))
    await until(lambda: lost, "the loss")
    assert store.calls["renew"] == 1
    assert lease.lost
    assert "before a renewal got through" in lease.lost_because
    await keeper.close()
