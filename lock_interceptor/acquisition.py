"""All locks of one attempt, or none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from lock_interceptor import waiting as policy
from lock_interceptor.errors import LockLost
from lock_interceptor.hold import Hold
from lock_interceptor.keeper import settle
from lock_interceptor.request import LockRequest
from lock_interceptor.terms import Terms, Want


class Acquisition:
    """Takes all locks of one attempt, and holds none of them while it waits for another."""

    def __init__(self, wants: Sequence[Want], terms: Terms) -> None:
        self._terms = terms
        # one global order for everybody, so that no two attempts wait for each other
        ordered = sorted(wants, key=lambda want: want.claim.lock)
        self._requests = [LockRequest(want, terms) for want in ordered]

    async def acquire(self) -> tuple[Hold, ...]:
        """Wait for all locks.

        Raises:
            LockLost: a lock was lost again while another one was asked for.
            LockBusy, LockNotAcquired, LockStoreUnavailable, BaseException: as `LockRequest.wait`.
        """
        blocked, times = self._requests[0], 0
        while True:
            if (times := times + 1) > 2:
                # two attempts that both got what the other one needs could swap it for ever
                await asyncio.sleep(random.uniform(0, min(0.0025 * 2**times, 0.5)))  # noqa: S311 - no secret
            await blocked.wait()
            for request in self._requests:
                if request.hold is None and await request.ask() is not None:
                    blocked = request
                    break
            else:
                self._terms.attempt.check()
                return tuple(_still_held(request.hold) for request in self._requests if request.hold)
            await settle([given_back for request in self._requests for given_back in request.step_back()])
            self._terms.body.give_back()

    def abandon(self, *, keep_place: bool, at_once: bool = False) -> list[asyncio.Task[Any]]:
        """Leave nothing behind but, if they are to be kept, the places in line. Goes on in the background.

        There is no place to keep for an activity that cannot come back.
        """
        keep_place = keep_place and policy.may_return(
            self._terms.attempt.allowance, self._terms.until_deadline
        )
        return [
            left
            for request in self._requests
            for left in request.abandon(keep_place=keep_place, at_once=at_once)
        ]

    def report(self) -> None:
        """Log what the requests came to, when all is done that they say."""
        for request in self._requests:
            request.report()


def _still_held(hold: Hold) -> Hold:
    if hold.lease.lost:
        raise LockLost(f"lock {hold.lease.label} was lost before the body began: {hold.lease.lost_because}")
    return hold
