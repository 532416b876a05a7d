"""The fault matrix around the lock: a worker whose standard output, and so its log, is broken.

It is a process of its own on Temporal, with structlog as it comes.
"""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

import pytest
from exit_worker import WIDE, Raising
from process_bodies import Work, seen
from process_fleet import watched
from process_scene import SLACK
from stage import until

from lock_interceptor.dev import RedisServer, TemporalServer

LEASE = 1.5


@contextmanager
def full_disk() -> Iterator[IO[str]]:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        yield full


@contextmanager
def closed_pipe() -> Iterator[int]:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


@contextmanager
def poor_encoding() -> Iterator[int]:
    yield subprocess.DEVNULL


OUTPUTS: dict[str, tuple[Callable[[], AbstractContextManager[int | IO[str]]], str, dict[str, str]]] = {
    "full disk": (full_disk, "No space left on device", {}),
    "closed pipe": (closed_pipe, "Broken pipe", {}),
    "poor encoding": (poor_encoding, "codec can't encode", {"PYTHONIOENCODING": "ascii:strict"}),
}


@pytest.mark.parametrize("output", OUTPUTS)
async def test_standard_output(
    output: str, temporal_server: TemporalServer, matrix_server: RedisServer, tmp_path: Path
) -> None:
    """A worker whose log goes to a broken standard output holds, waits and is told as any other."""
    opened, error, variables = OUTPUTS[output]
    with (
        watched(temporal_server, matrix_server, tmp_path, f"standard output: {output}", LEASE) as workers,
        opened() as stdout,
        workers.run.fault(output),
    ):
        member = workers.member("async", stdout=stdout, **variables)
        assert await workers.call("async", "plain_async", Raising("Own", "nowhere")) == "done"

        def work(who: str, seconds: float) -> "asyncio.Future[str]":
            work = Work(str(tmp_path), who, seconds)
            return asyncio.ensure_future(workers.call("async", "wide_async", work))

        assert await work("alone", 2 * LEASE) == "done", f"{output}: held for two leases"
        async with workers.somebody_else(WIDE):
            waiter = work("waiter", 0.05)
            await until(lambda: waiter.done() or workers.waiting(WIDE), "a waiter")
        assert await waiter == "done", f"{output}: waited for the lock"
        loser = work("loser", 4 * LEASE)
        await until(lambda: loser.done() or "loser" in {each.who for each in seen(tmp_path)}, "a body")
        workers.forget()
        assert await loser == "ApplicationError LockLost", f"{output}: told of its loss"
        moments = {each.what: each.at for each in seen(tmp_path) if each.who == "loser"}
        assert moments["told"] - moments["began"] <= LEASE + SLACK, f"{output}: told late"
        assert await member.end(20) == 0, member.last_words()
        reports = [line for line in member.said().splitlines() if error in line]
        assert 1 <= len(reports) <= 2, f"{output}: reported {len(reports)} times on standard error: {reports}"
