"""The same with testcontainers: Redis by its module, Temporal as any container, workers as processes."""

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import history
import pytest
from engine import image
from scene import Scene
from stack import paused
from temporalio.client import Client
from testcontainers.community.redis import RedisContainer
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import PortWaitStrategy
from visitors import visiting
from workers import WorkerProcess


@pytest.fixture(scope="module")
def redis(engine: None) -> Iterator[RedisContainer]:
    """A Redis server."""
    del engine
    with RedisContainer(image("redis")).with_command("redis-server --protected-mode no") as running:
        yield running


@pytest.fixture(scope="module")
def temporal_address(engine: None) -> Iterator[str]:
    """Temporal's dev server."""
    del engine
    container = DockerContainer(image("temporal")).with_command("server start-dev --ip 0.0.0.0 --headless")
    container = container.with_exposed_ports(7233).waiting_for(PortWaitStrategy(7233))
    with container as running:
        yield f"{running.get_container_host_ip()}:{running.get_exposed_port(7233)}"


@pytest.fixture
async def processes(
    redis: RedisContainer, temporal_address: str, tmp_path: Path
) -> AsyncIterator[Scene[WorkerProcess]]:
    """Workers in processes of this machine, visitors and their history."""
    queue, directory = f"integration-{uuid4()}", tmp_path / "history"
    client = await Client.connect(temporal_address)
    with history.recording(directory) as run:

        async def launch(environment: Mapping[str, str]) -> WorkerProcess:
            return await WorkerProcess.start(environment, directory, run)

        async with visiting(client, queue) as visitors:
            scene = Scene(launch, run, visitors, directory, queue)
            url = f"redis://{redis.get_container_host_ip()}:{redis.get_exposed_port(6379)}"
            scene.settings = {"TEMPORAL_ADDRESS": temporal_address, "REDIS_URL": url}
            try:
                yield scene
            finally:
                await scene.close()


async def test_redis_hangs_and_a_worker_is_killed(
    redis: RedisContainer, processes: Scene[WorkerProcess]
) -> None:
    """Never more hold a lock than may, neither meanwhile nor later."""
    name = redis.get_wrapped_container().name
    await processes.watch(name)
    async with processes.load() as (victim, _):
        async with processes.hanging():
            with processes.run.fault("redis paused"):
                async with paused(name):
                    await processes.until_lost()
        await processes.until_served()
        with victim.hanging():
            await processes.until(lambda: victim.working, "a lock that the victim holds")
            await victim.kill()
        await processes.until_served(8)
    await processes.conclude("testcontainers", at_least={"faults": 2, "lost": 2, "told": 2, "clients": 2})
