"""What the integration tests share: the services of docker-compose.yml, and one scene for each test."""

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest

# the history checker and its tools
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import figures
import history
from engine import require_engine, use_dotenv
from scene import Scene
from stack import Stack, leftovers
from temporalio.client import Client
from visitors import visiting
from workers import WorkerContainer

# the first test of all has to wait for images
TIMEOUT = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test its time."""
    for item in items:
        item.add_marker(pytest.mark.timeout(TIMEOUT))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was injected, and what was seen."""
    figures.show(terminalreporter, "injected and seen")


@pytest.fixture(scope="session", autouse=True)
def engine() -> None:
    """A container engine."""
    use_dotenv()
    require_engine()


@pytest.fixture(scope="session")
def stack(engine: None) -> Iterator[Stack]:
    """Temporal and Redis by docker-compose.yml, and the image of the worker."""
    del engine
    stack = Stack()
    stack.down()  # what a run that was killed has left
    try:
        stack.compose("--profile", "worker", "build", "--quiet", "worker")
        stack.up("temporal", "redis")
        yield stack
    finally:
        stack.down()
    assert not leftovers()


@pytest.fixture
async def client(stack: Stack) -> Client:
    """A client of Temporal."""
    return await Client.connect(stack.temporal_address)


@pytest.fixture
async def scene(stack: Stack, client: Client, tmp_path: Path) -> AsyncIterator[Scene[WorkerContainer]]:
    """Worker containers, visitors and their history; all containers of workers are gone at the end."""
    queue, directory = f"integration-{uuid4()}", tmp_path / "history"
    with history.recording(directory) as run:

        async def launch(environment: Mapping[str, str]) -> WorkerContainer:
            return await WorkerContainer.start(stack, environment, directory, run)

        async with visiting(client, queue) as visitors:
            scene = Scene(launch, run, visitors, directory, queue)
            scene.settings = {"REDIS_URL": "redis://redis:6379"}
            try:
                yield scene
            finally:
                await scene.close()
