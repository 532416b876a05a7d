"""Redis in its container is stopped, crashes and hangs under load."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import pytest
from engine import docker_soon
from scene import Scene
from stack import container, healthy, paused
from workers import WorkerContainer

REDIS = container("redis")


@asynccontextmanager
async def ended(how: str) -> AsyncIterator[None]:
    """Redis is down, by a command of the engine."""
    await docker_soon(how, REDIS)
    try:
        yield
    finally:
        await docker_soon("start", REDIS)
        await healthy(REDIS)


@dataclass(frozen=True)
class Trouble:
    """What happens to Redis, and whether it is another process after that."""

    name: str
    begin: Callable[[], AbstractAsyncContextManager[None]]
    lives: int


TROUBLES = [
    Trouble("redis stopped", lambda: ended("stop"), 2),
    Trouble("redis killed", lambda: ended("kill"), 2),
    Trouble("redis paused", lambda: paused(REDIS), 1),
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name)
async def test_redis_is_gone_for_longer_than_a_lease(trouble: Trouble, scene: Scene[WorkerContainer]) -> None:
    """Who holds a lock is told that it is lost before anybody else gets it, and all goes on afterwards."""
    await scene.watch(REDIS)
    async with scene.load():
        async with scene.hanging():
            with scene.run.fault(trouble.name):
                async with trouble.begin():
                    await scene.until_lost()
        await scene.until_served(8)
    await scene.conclude(
        trouble.name, at_least={"lost": 2, "told": 2, "unclear answers": 1, "servers": trouble.lives}
    )


async def test_redis_is_restarted(scene: Scene[WorkerContainer]) -> None:
    """It comes back within a lease with what it knew, so that whoever holds a lock keeps it."""
    await scene.watch(REDIS)
    async with scene.load(LOCK_LEASE_SECONDS="8"):
        async with scene.hanging():
            with scene.run.fault("redis restarted"):
                await docker_soon("restart", REDIS)
                await healthy(REDIS)
        await scene.until_served(8)
    await scene.conclude("redis restarted", at_least={"servers": 2}, at_most={"lost": 0})
