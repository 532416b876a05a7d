"""The services of docker-compose.yml, as a project of the tests' own that is removed without a trace."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator

from engine import ALL, docker, docker_soon
from stage import until

from lock_interceptor.dev.process import HOST, free_ports

PROJECT = "lock-interceptor-integration"
FILES = ("-f", "docker-compose.yml", "-f", "integration/compose.history.yml")


class Stack:
    """A copy of docker-compose.yml, on free ports."""

    def __init__(self) -> None:
        temporal, interface, redis = map(str, free_ports(3))
        self.temporal_address = f"{HOST}:{temporal}"
        self.redis_url = f"redis://{HOST}:{redis}"
        self.variables = {
            "TEMPORAL_PORT": temporal,
            "TEMPORAL_UI_PORT": interface,
            "REDIS_PORT": redis,
            "SENTINEL_SUBNET": "10.213.48",  # beside whatever `make up` has started
            "HISTORY_USER": f"{os.getuid()}:{os.getgid()}",
        }

    def compose(self, *words: str) -> str:
        """Run a command of Compose."""
        return docker("compose", "-p", PROJECT, *FILES, *words, variables=self.variables)

    async def compose_soon(self, *words: str) -> str:
        """Like `compose`, while other things go on."""
        return await asyncio.to_thread(self.compose, *words)

    def up(self, *services: str) -> None:
        """Start services, and return when they are healthy."""
        self.compose(*ALL, "up", "--detach", "--wait", "--quiet-pull", *services)

    def end(self, *services: str) -> None:
        """Remove services."""
        self.compose(*ALL, "rm", "--stop", "--force", "--volumes", *services)

    def down(self) -> None:
        """Remove everything."""
        self.compose(*ALL, "down", "--volumes", "--remove-orphans", "--timeout", "0")

    @contextlib.contextmanager
    def running(self, *services: str) -> Iterator[None]:
        """Have services for a while."""
        try:
            self.up(*services)
            yield
        finally:
            self.end(*services)


def container(service: str) -> str:
    """The name of a service's container."""
    return f"{PROJECT}-{service}-1"


def leftovers() -> list[str]:
    """What there is of the project: containers, networks and volumes."""
    label = ("--filter", f"label=com.docker.compose.project={PROJECT}")
    lists = (("ps", "--all", "--format", "{{.Names}}"), ("network", "ls"), ("volume", "ls"))
    found = []
    for words in lists:
        more = () if "--format" in words else ("--format", "{{.Name}}")
        found += docker(*words, *more, *label).split()
    return found


async def healthy(name: str) -> None:
    """Wait until a container that was started again is healthy."""
    ask = ("inspect", "--format", "{{.State.Health.Status}}", name)

    async def is_healthy() -> bool:
        return await docker_soon(*ask) == "healthy\n"

    await until(is_healthy, f"{name} healthy", 30)


async def redis_cli(name: str, *words: str) -> str:
    """Send a command to the server in a container, from within."""
    return await docker_soon("exec", name, "redis-cli", *words)


@contextlib.asynccontextmanager
async def paused(name: str) -> AsyncIterator[None]:
    """All processes of a container stand still."""
    await docker_soon("pause", name)
    try:
        yield
    finally:
        await docker_soon("unpause", name)


@contextlib.asynccontextmanager
async def cut_off(name: str, network: str) -> AsyncIterator[None]:
    """A container has lost a network; it comes back with another address.

    So what was on its way is lost. With the same address TCP would deliver it after all, a request to take a
    lock even after that lock has been taken and given back again; it would then be held for nobody until the
    lease ends.
    """
    network, other = f"{PROJECT}_{network}", container("temporal")
    address = f'{{{{(index .NetworkSettings.Networks "{network}").IPAddress}}}}'
    before = await docker_soon("inspect", "--format", address, name)
    await docker_soon("network", "disconnect", network, name)
    try:
        yield
    finally:
        await docker_soon("network", "connect", network, other)  # takes the address that is free
        await docker_soon("network", "connect", network, name)
        await docker_soon("network", "disconnect", network, other)
    assert await docker_soon("inspect", "--format", address, name) not in {before, "\n"}
