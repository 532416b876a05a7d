"""The fault matrix on one server: what may happen to the processes of workers, and to clocks."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import history
import pytest
from fault_load import LEASE, LOCKS, ONE, POLL, LoadWorker, load
from fault_matrix import GRANTS, SLACK, Row, Scene, for_a_while, line, play
from figures import measured
from history import Expectations
from servers import redis_binaries

from lock_interceptor.dev import RedisServer

MOST = sum(lock.limit for lock in LOCKS) - 1
"""So many hold when nobody gives back: all slots, and one may just be changing hands."""


def two(scene: Scene) -> tuple[LoadWorker, LoadWorker]:
    """The worker to which it happens, and the other one."""
    victim, other = scene.loaded.workers
    return victim, other


async def killed_while_holding(scene: Scene) -> None:
    victim, _ = two(scene)
    async with scene.loaded.hanging([victim]):
        await victim.kill()


async def killed_while_waiting(scene: Scene) -> None:
    victim, other = two(scene)
    async with scene.loaded.hanging([other]):
        await victim.kill()


def killed_in_release(moment: str) -> Callable[[Scene], object]:
    """Killed when it gives back: before that is sent, when it is on its way, or when it is done."""

    async def inject(scene: Scene) -> None:
        victim, _ = two(scene)
        victim.order("die in release", moment)
        await victim.died()

    return inject


async def stopped(scene: Scene) -> None:
    """For two leases, in which others get the lock; what it still writes then is refused."""
    victim, other = two(scene)
    async with scene.loaded.hanging([victim]):
        since = time.monotonic()
        with victim.stopped():
            victim.order("hang", value=False)  # the first thing that it hears when it goes on
            await scene.loaded.until_progress(workers=[other])
            await scene.loaded.until(lambda: time.monotonic() > since + 2 * LEASE, "two leases")


async def blocked(scene: Scene) -> None:
    victim, other = two(scene)
    async with scene.loaded.hanging([victim]):
        with scene.run.fault("event loop blocked", process=victim.pid):
            since = scene.loaded.mark()
            victim.order("block", 3 * LEASE)
            await scene.loaded.until(lambda: scene.loaded.outcomes(since)["block"], "the end of the block")
        assert scene.loaded.bodies([victim]) >= 4, "two of its clients are at each lock"
    await scene.loaded.until_progress(workers=[other])


async def wrong_about_the_time(scene: Scene) -> None:
    with scene.run.fault("wall clocks of workers"):
        for hours in (-1, 1):
            scene.loaded.start(wall_clock_off=hours * 3600)
        await scene.loaded.until_progress()
        await for_a_while(1)


ROWS = [
    Row("worker killed, holding", killed_while_holding, {"leases run out": 2}, {"lost": 0}),
    Row("worker killed, waiting", killed_while_waiting, {}, {"lost": 0}),
    *(
        Row(f"worker killed, release {moment}", killed_in_release(moment), {}, {"lost": 0})
        for moment in ("unsent", "sent", "done")
    ),
    Row(
        "worker stopped, 2 leases",
        stopped,
        {"lost": 1, "told": 1, "writes refused": 1},
        how={"locks": (ONE,), "clients": 3, "careless": True},
    ),
    Row("event loop blocked, 3 leases", blocked, {"renewals": 3}, {"lost": 0}),
    Row("wall clock of workers +-1 h", wrong_about_the_time, {"clients": 4}, {"lost": 0}),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_worker_in_trouble(row: Row, matrix_server: RedisServer, tmp_path: Path) -> None:
    """What a worker held is free soon after its end, and it never takes for its own what it has lost."""
    await play(row, matrix_server, tmp_path)


@contextmanager
def server_with_a_clock(directory: Path) -> Iterator[tuple[RedisServer, Callable[[float], object]]]:
    """A server, and a function that sets its clock off the real one by so many seconds."""
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not libraries:
        if os.environ.get("CI") == "true":
            pytest.fail("CI has to have libfaketime")
        pytest.skip("libfaketime is not installed")
    offset, binary = directory / "offset", directory / "server"
    offset.write_text("+0\n")
    variables = {
        "LD_PRELOAD": libraries[0],
        "FAKETIME_TIMESTAMP_FILE": offset,
        "FAKETIME_NO_CACHE": 1,
        "FAKETIME_DONT_FAKE_MONOTONIC": 1,
    }
    settings = " ".join(f"{name}='{value}'" for name, value in variables.items())
    binary.write_text(f'#!/bin/sh\nexec env {settings} {redis_binaries()["valkey"]} "$@"\n')
    binary.chmod(0o755)

    def set_off(seconds: float) -> None:
        new = directory / "offset.new"
        new.write_text(f"{seconds:+.3f}\n")
        new.replace(offset)

    with RedisServer(binary=binary) as server:
        yield server, set_off


@pytest.mark.parametrize("step", [-0.3, -5.0, -3600.0])
async def test_server_clock_steps_back(step: float, tmp_path: Path) -> None:
    """Leases last as long as they were to, nobody gets a slot too early, and a dead holder's slot in time."""
    with server_with_a_clock(tmp_path) as (server, set_off):

        async def inject(scene: Scene) -> None:
            victim, _ = two(scene)
            async with scene.loaded.hanging([victim]):
                with scene.run.fault("clock back"):
                    set_off(step)
                    await for_a_while(0.1)
                    await victim.kill()
                    await scene.loaded.until_progress()

        seen = {"leases run out": 2, "clock steps back": int(step < -1)}
        await play(Row(f"server clock {step} s", inject, seen, {"lost": 0}), server, tmp_path)


async def test_server_clock_steps_forward(tmp_path: Path) -> None:
    """Leases end early, which nothing can prevent: it is detected and said, and tokens go on rising."""
    with server_with_a_clock(tmp_path) as (server, set_off):
        with history.recording(tmp_path / "history", server) as run:
            async with load(run, {"REDIS_URL": server.url}) as loaded:
                pids = {worker.pid for worker in loaded.workers}

                def all_renewed() -> bool:
                    return pids <= {note.process for note in run.notes() if note.what == "extend"}

                async with loaded.hanging():
                    await loaded.until(all_renewed, "renewals, to know the clock by")
                    with run.fault("clock forward"):
                        set_off(5)
                        await loaded.until(lambda: loaded.outcomes()["LockLost"] >= MOST, "losses")
                await loaded.until_progress()
                await loaded.until(lambda: loaded.grants() >= GRANTS, "many grants")
            report = history.check(
                run.rows(), run.notes(), Expectations(poll=POLL * 1.2, slack=SLACK).on_this_machine()
            )
        said = [worker.log.read_text() for worker in loaded.workers]
    measured(line("server clock +5 s", report))
    assert report.rules <= {"S2", "S3"}, str(report)
    assert report.counts["lost"] == report.counts["explained"] >= MOST
    assert report.counts["leases run out"] >= MOST
    assert all("lock.clock_stepped" in log for log in said)
