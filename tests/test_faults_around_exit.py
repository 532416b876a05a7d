"""The fault matrix around the lock: a worker process that ends while it holds a lock."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from process_bodies import KINDS, ONE, Seen, Work, seen
from process_fleet import Fleet, Member, watched
from process_scene import SLACK, told_within
from stage import until

from lock_interceptor.dev import RedisServer, TemporalServer
from lock_interceptor.lease import clock

LEASE = 1.5
BODY = 3.5
"""Seconds: a process may be kept from ending by a body that goes on, and by nothing else."""
ENDS_WITHIN = BODY + 10.0

ENDINGS: dict[str, Callable[[Member], None]] = {
    "SIGTERM": lambda member: member.process.send_signal(signal.SIGTERM),
    "SIGINT": lambda member: member.process.send_signal(signal.SIGINT),
    "sys.exit": lambda member: member.tell("exit"),
    "os._exit": lambda member: member.tell("_exit"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ENDINGS)
async def test_the_process_ends(
    ending: str, kind: str, temporal_server: TemporalServer, matrix_server: RedisServer, tmp_path: Path
) -> None:
    """It ends in bounded time while a lock is held, others get the lock, and no body overlaps theirs."""
    row = f"{ending} while held, {kind}"
    with watched(temporal_server, matrix_server, tmp_path, row, LEASE) as workers:
        name = ONE[kind].__name__
        attempt = asyncio.ensure_future(
            workers.call(kind, name, Work(str(tmp_path), "first", BODY), heartbeat=60)
        )
        await until(lambda: seen(tmp_path), "a body that has begun", 30)
        member = workers.member(kind)
        with workers.run.fault(row):
            ENDINGS[ending](member)
            follower = asyncio.ensure_future(next_one(workers))
            await member.over(ENDS_WITHIN)
            ended = clock()
            workers.run.killed(member.process.pid)
            began = await follower
        attempt.cancel()
        await asyncio.wait({attempt})
        assert began <= ended + LEASE + SLACK, f"{row}: the lock was held {began - ended:.1f} s for nobody"
        if kind == "process":  # the process of the pool may live on, with its body
            await until(lambda: said(tmp_path, "ended"), f"{row}: its body has ended", BODY + 5)
        for each in said(tmp_path, "ended"):
            over = each.at - began
            assert over <= told_within(), f"{row}: its body worked on for {over:.1f} s beside the next one"


async def next_one(workers: Fleet) -> float:
    """When somebody else got the lock."""
    async with workers.somebody_else(seconds=ENDS_WITHIN + LEASE + SLACK) as began:
        return began


def said(directory: Path, what: str) -> list[Seen]:
    """What the first body has said."""
    return [each for each in seen(directory) if each.who == "first" and each.what == what]
