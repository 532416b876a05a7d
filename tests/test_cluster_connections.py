"""Connections to the nodes of a Cluster when something happens to them, and without REDIS_CLUSTER."""

import asyncio
import gc
from collections.abc import Iterator

import pytest
from redis_tools import LEASE, connections, eventually, new_claim, open_store, take
from servers import ClusterSet, command
from structlog.testing import capture_logs

from lock_interceptor import LockStoreUnavailable


@pytest.fixture(scope="module")
def servers() -> Iterator[ClusterSet]:
    """Three nodes without replicas."""
    with ClusterSet() as servers:
        yield servers


def _connected(servers: ClusterSet) -> int:
    return sum(len(connections(node)) for node in servers.nodes)


@pytest.mark.parametrize("how", ["by hand", "when idle"])
async def test_connections_that_nodes_closed_go_unnoticed(servers: ClusterSet, how: str) -> None:
    """Idle connections that were closed meanwhile are replaced, and no request runs into them."""
    before = _connected(servers)
    with capture_logs() as logs:
        async with open_store(servers.url, redis_cluster=True, durability="primary") as store:
            claims = [new_claim() for _ in range(30)]  # some on each node, but for one time in a million
            await asyncio.gather(*(take(store, claim) for claim in claims))
            for node in servers.nodes:
                if how == "by hand":
                    command(node, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                else:
                    command(node, "CONFIG", "SET", "timeout", 1)
            await eventually(lambda: _connected(servers) <= before, "the end of all connections")
            for _ in range(3):  # the loop has to see it, as it does when time passes
                await asyncio.sleep(0)
            assert all([await store.renew(claim, lease=LEASE) for claim in claims])
            for node in servers.nodes:
                command(node, "CONFIG", "SET", "timeout", 0)
    assert not [entry for entry in logs if entry["log_level"] == "warning"]


async def test_closing_after_an_error_leaves_no_connection(servers: ClusterSet) -> None:
    """A store that is closed when its last request failed has closed its connections to all nodes."""
    async with open_store(servers.url, redis_cluster=True, durability="primary", lease=5) as store:
        claims = [new_claim() for _ in range(30)]
        await asyncio.gather(*(take(store, claim) for claim in claims))
        for node in servers.nodes:
            node.pause()
        try:
            with pytest.raises(LockStoreUnavailable):
                await store.renew(claims[0], lease=LEASE)
        finally:
            for node in servers.nodes:
                node.resume()
    await eventually(lambda: _connected(servers) == 0, "the end of all connections")
    gc.collect()  # an open connection would warn now


async def test_a_cluster_without_its_setting_is_told(servers: ClusterSet) -> None:
    """A node that sends an ordinary client elsewhere gets REDIS_CLUSTER named in the error."""
    async with open_store(servers.url) as store:
        errors = [str(error) for error in await _errors(store)]
    assert errors
    assert all("set REDIS_CLUSTER=true" in error for error in errors)


async def _errors(store: object) -> list[Exception]:
    asked = (store.acquire(new_claim(), lease=LEASE) for _ in range(30))
    return [
        each for each in await asyncio.gather(*asked, return_exceptions=True) if isinstance(each, Exception)
    ]
