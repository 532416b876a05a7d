"""Containers of workers share locks, and lose their server or each other."""

import time

from figures import measured
from scene import LEASE, Scene
from stack import container, cut_off
from workers import WorkerContainer


async def test_several_workers(scene: Scene[WorkerContainer]) -> None:
    """Never more hold a lock than may, whichever containers they are in."""
    await scene.watch(container("redis"))
    async with scene.load(workers=3):
        await scene.until_served(12)
    await scene.conclude("three workers", at_least={"clients": 3, "faults": 0}, at_most={"lost": 0})


async def test_a_worker_is_killed(scene: Scene[WorkerContainer]) -> None:
    """What a dead container held is free within a lease and a second, and its activities go on elsewhere."""
    await scene.watch(container("redis"))
    async with scene.load(workers=3) as (victim, *_):
        with victim.hanging():
            await scene.until(lambda: victim.working >= 2, "locks that the victim holds")
            await victim.kill()
        began = time.monotonic()
        await scene.until_served(8)
        measured(
            f"everybody served {time.monotonic() - began:.1f} s after the kill, with a lease of {LEASE} s"
        )
    await scene.conclude("worker killed", at_least={"clients": 3, "leases run out": 1}, at_most={"lost": 0})


async def test_a_worker_is_cut_off_from_redis(scene: Scene[WorkerContainer]) -> None:
    """It loses its locks and knows, others get them, and when the network is back it takes part again."""
    await scene.watch(container("redis"))
    async with scene.load() as (victim, other):
        with victim.hanging():
            await scene.until(lambda: victim.working >= 2, "locks that the victim holds")
            with scene.run.fault("network cut"):
                async with cut_off(victim.name, "redis"):
                    await scene.until_lost(victim)
                    before = other.began
                    await scene.until(lambda: other.began > before + 4, "locks for the other one")
        await scene.until_served()
    await scene.conclude("network cut", at_least={"lost": 1, "told": 1, "unclear answers": 1})
