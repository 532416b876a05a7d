"""Servers for a whole test run, and what each test has of its own."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import figures
import pytest
from servers import matrix_binary, require_redis
from stage import Kind, Stage, all_kinds
from temporalio.client import Client

from lock_interceptor import LockSettings, RedisLockStore
from lock_interceptor.dev import RedisServer, TemporalServer


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests measured."""
    figures.show(terminalreporter, "measured")


@pytest.fixture(scope="session")
def temporal_server() -> Iterator[TemporalServer]:
    """A Temporal dev server."""
    with TemporalServer(headless=True) as server:
        yield server


@pytest.fixture(scope="session")
def valkey() -> Iterator[RedisServer]:
    """The Valkey server that every machine with the dev extra has."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis7() -> Iterator[RedisServer]:
    """The redis-server of this machine; without one tests are skipped, or fail in CI."""
    with RedisServer(binary=require_redis()) as server:
        yield server


@pytest.fixture(scope="session")
def matrix_server() -> Iterator[RedisServer]:
    """The server of the fault matrix that tests may share."""
    with RedisServer(binary=matrix_binary()) as server:
        yield server


@pytest.fixture
async def client(temporal_server: TemporalServer) -> Client:
    """A client of the Temporal dev server."""
    return await Client.connect(temporal_server.address, namespace=temporal_server.namespace)


@pytest.fixture
def task_queue() -> str:
    """A task queue that no other test uses."""
    return f"test-{uuid4()}"


@pytest.fixture(scope="session")
def kinds() -> Iterator[dict[str, Kind]]:
    """Activities in coroutines, threads and processes, by these names: async, thread, process."""
    with all_kinds() as kinds:
        yield kinds


@pytest.fixture(params=["async", "thread", "process"])
def kind(request: pytest.FixtureRequest, kinds: dict[str, Kind]) -> Kind:
    """Each kind of activity in turn."""
    return kinds[request.param]


@pytest.fixture
async def stage(
    temporal_server: TemporalServer, valkey: RedisServer, client: Client, task_queue: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    """An application of its own; fails the test if it leaves more than bookkeeping in Redis."""
    settings = LockSettings(
        application_name=f"app-{uuid4()}",
        redis_url=valkey.url,
        # with a long lease goes patience for an answer of Redis, which a busy machine needs
        lease=timedelta(seconds=10),
        retry_interval=timedelta(seconds=0.5),
    )
    store = RedisLockStore(settings)
    stage = Stage(temporal_server, valkey, client, task_queue, tmp_path, settings, store)
    try:
        yield stage
        await stage.until_empty()
    finally:
        await store.close()
