"""The container of a primary is killed, and the Sentinels agree on another one."""

from collections.abc import Iterator

import pytest
from engine import docker_soon
from figures import measured
from scene import Scene
from stack import Stack, container, healthy, redis_cli
from stage import until
from workers import WorkerContainer

DATA = tuple(f"sentinel-data-{number}" for number in (1, 2, 3))
SENTINELS = tuple(f"sentinel-{number}" for number in (1, 2, 3))
ASK = ("-p", "26379", "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")


@pytest.fixture
def sentinels(stack: Stack) -> Iterator[None]:
    """A primary, two replicas and three Sentinels."""
    with stack.running(*DATA, *SENTINELS):
        yield


async def primary() -> str:
    """The service that all Sentinels name, or nothing while they do not agree."""
    named = {(await redis_cli(container(sentinel), *ASK)).split()[0] for sentinel in SENTINELS}
    return DATA[int(named.pop().split(".")[-1]) - 11] if len(named) == 1 else ""


async def follows(service: str) -> bool:
    """Whether the server is a replica that is in touch with its primary."""
    facts = await redis_cli(container(service), "INFO", "replication")
    return "role:slave" in facts and "master_link_status:up" in facts


@pytest.mark.usefixtures("sentinels")
async def test_the_primary_is_killed(scene: Scene[WorkerContainer]) -> None:
    """Another one takes over, what it knows of is not granted twice, and the old one comes back below it."""
    hosts = ",".join(f"{sentinel}:26379" for sentinel in SENTINELS)
    scene.settings = {"REDIS_SENTINEL_HOSTS": hosts, "LOCK_DURABILITY": "strict"}
    await scene.watch(*map(container, DATA))
    async with scene.load():
        old = await until(primary, "agreement on a primary")

        async def taken_over() -> str:
            new = await primary()
            acts = new not in {"", old} and "role:master" in await redis_cli(
                container(new), "INFO", "replication"
            )
            return new if acts else ""

        with scene.run.fault("primary killed"):
            await docker_soon("kill", container(old))
            new = await until(taken_over, "another primary", 60)
            await docker_soon("start", container(old))
            await healthy(container(old))
            await until(lambda: follows(old), f"{old} as a replica of {new}", 60)
        await scene.until_served(8)
    await scene.conclude("sentinel, primary killed", at_least={"servers": 2, "histories begun anew": 1})
    measured(f"{old} was killed, {new} took over")
