"""The fault matrix on one server: what a bad network does to locks under load."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fault_load import LEASE, LOCKS, LONG, ONE, THREE
from fault_matrix import Row, Scene, for_a_while, play
from fault_proxy import FaultProxy
from picky_proxy import PickyProxy

from lock_interceptor.dev import RedisServer

PULSES = 3
PULSE = 0.3
MOST = sum(lock.limit for lock in LOCKS) - 1
"""So many hold when nobody gives back: all slots, and one may just be changing hands."""


def pulses(what: str, begin: Callable[[FaultProxy], None]) -> Callable[[Scene], object]:
    """A fault that comes and goes several times."""

    async def inject(scene: Scene) -> None:
        for _ in range(PULSES):
            with scene.fault(what):
                begin(scene.net)
                await for_a_while(PULSE)
                scene.net.heal()
            await for_a_while(PULSE)

    return inject


async def cut_before_it_arrives(scene: Scene) -> None:
    with scene.fault("reset before forward"):
        scene.net.kill_on_next_requests(30)
        await scene.loaded.until(lambda: scene.net.struck, "thirty resets")


async def cut_after_it_arrived(scene: Scene) -> None:
    with scene.fault("reset after forward"):
        for _ in range(30):
            scene.net.kill_on_next_reply()
            await scene.loaded.until(lambda: not scene.net._kill_on_next_reply, "a reset")  # noqa: SLF001


async def tear(scene: Scene) -> None:
    with scene.fault("torn replies"):
        scene.net.tear_next_replies(30)
        await scene.loaded.until(lambda: scene.net.struck, "thirty torn replies")


async def cut_all(scene: Scene) -> None:
    for _ in range(PULSES):
        with scene.fault("reset of everything"):
            scene.net.cut()
        await for_a_while(PULSE)


async def refuse(scene: Scene) -> None:
    with scene.fault("connections refused"):
        scene.net.refuse()
        scene.net.cut()
        await for_a_while(2 * PULSE)
        scene.net.heal()


async def strand(scene: Scene) -> None:
    with scene.fault("half-open connections"):
        scene.net.strand()
        await scene.loaded.until_progress()


async def latency(scene: Scene) -> None:
    with scene.fault("latency"):
        scene.net.jitter(0.1, 0.5)
        await for_a_while(3.5)
        await scene.loaded.until(lambda: renewals(scene) >= 2, "renewals")
        scene.net.jitter(0, 0)


def renewals(scene: Scene) -> int:
    """How many leases have been renewed."""
    return sum(note.what == "extend" for note in scene.run.notes())


def bearable(lease: float) -> float:
    """How long an outage may last that costs no lease: renewals come in time, and one of them may hang."""
    timeout = margin = lease / 10
    return lease * (1 - 1.1 / 3) - margin - timeout


SHORT_HOLE = 4.0
"""Seconds of a lease that is long enough for this machine to be late now and then."""


async def short_hole(scene: Scene) -> None:
    async with scene.loaded.hanging():
        with scene.fault("black hole"):
            scene.net.black_hole()
            await for_a_while(bearable(SHORT_HOLE) - 0.3)
            scene.net.heal()
        await for_a_while(SHORT_HOLE / 4)  # that is when a lease would end


async def long_hole(scene: Scene) -> None:
    async with scene.loaded.hanging():
        with scene.fault("black hole"):
            scene.net.black_hole()
            await for_a_while(1.5 * LEASE)
            # nobody can tell them but they themselves
            await scene.loaded.until(lambda: scene.loaded.outcomes()["LockLost"] >= MOST, "losses")
            scene.net.heal()


ROWS = [
    Row(
        "requests lost", pulses("requests lost", FaultProxy.drop_requests), {"requests lost": 5, "faults": 3}
    ),
    Row("replies lost", pulses("replies lost", FaultProxy.drop_replies), {"answers lost": 5, "faults": 3}),
    Row("reset before forward", cut_before_it_arrives, {"requests lost": 10}),
    Row("reset after forward", cut_after_it_arrived, {"answers lost": 10}),
    Row("torn replies", tear, {"unclear answers": 10, "answers lost": 1}),
    Row("reset of everything", cut_all, {"faults": 3}),
    Row("connections refused", refuse, {"requests lost": 5}),
    Row("half-open connections", strand, {"requests lost": 2}),
    Row(
        "latency",
        latency,
        {"renewals": 2},
        {"lost": 0},
        how={"lease": 10, "locks": (ONE, THREE, replace(LONG, hold=(3.5, 4.0)))},
        expected={"slack": 6.0},
    ),
    Row("black hole, short", short_hole, {"requests lost": 5}, {"lost": 0}, how={"lease": SHORT_HOLE}),
    Row("black hole, 1.5 leases", long_hole, {"lost": MOST, "told": 1}),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_bad_network(row: Row, matrix_server: RedisServer, tmp_path: Path) -> None:
    """Whatever is lost, late or torn on the way: nobody holds what is another one's, and things go on."""
    with FaultProxy(matrix_server.port) as proxy:
        await play(row, matrix_server, tmp_path, proxy=proxy)


async def test_only_wakeups_are_dropped(matrix_server: RedisServer, tmp_path: Path) -> None:
    """With no message ever delivered, polling alone finds every free slot within its interval."""

    async def inject(scene: Scene) -> None:
        with scene.fault("wake-ups dropped"):
            proxy.black_hole()
            await for_a_while(2.0)

    with PickyProxy(matrix_server.port, "SUBSCRIBE") as proxy:
        row = Row("wake-ups dropped", inject, {"wake-ups": 10}, {"lost": 0})
        await play(row, matrix_server, tmp_path, proxy=proxy)
