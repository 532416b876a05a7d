"""Locks on a Cluster of containers, of which one crashes."""

from collections.abc import Iterator

import pytest
from engine import docker_soon
from figures import measured
from scene import Scene
from stack import Stack, container, healthy, redis_cli
from stage import until
from workers import WorkerContainer

NODES = tuple(f"cluster-{number}" for number in (1, 2, 3))


@pytest.fixture
def cluster(stack: Stack) -> Iterator[None]:
    """Three primaries."""
    with stack.running(*NODES):
        yield


async def whole() -> bool:
    """Whether every node sees all of the Cluster."""
    return all(["cluster_state:ok" in await redis_cli(container(node), "CLUSTER", "INFO") for node in NODES])


@pytest.mark.usefixtures("cluster")
async def test_a_node_is_killed(scene: Scene[WorkerContainer]) -> None:
    """There are no locks while it is away, and it comes back with those that it had."""
    scene.settings = {"REDIS_URL": f"redis://{NODES[0]}:6379", "REDIS_CLUSTER": "true"}
    await scene.watch(*map(container, NODES))
    async with scene.load():
        (victim, *_) = [node for node in NODES if await redis_cli(container(node), "DBSIZE") != "0\n"]
        with scene.run.fault("node killed"):
            await docker_soon("kill", container(victim))
            await docker_soon("start", container(victim))
            await healthy(container(victim))
            await until(whole, "a whole Cluster", 60)
        await scene.until_served(8)
    await scene.conclude("cluster, node killed", at_least={"unclear answers": 1})
    lives = {row.process for row in scene.run.rows() if container(victim) in row.server}
    measured(f"{victim} was killed and had locks in {len(lives)} lives")
    assert len(lives) == 2
