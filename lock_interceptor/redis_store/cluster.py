"""What redis-py does for one server and leaves undone in a Cluster."""

from __future__ import annotations

from redis.asyncio.cluster import RedisCluster


async def drop_closed(client: RedisCluster) -> None:
    """Let go of idle connections that the server has closed, so that no request runs into them."""
    for node in client.get_nodes():
        for connection in list(node._free):  # noqa: SLF001 - there is no other way to the idle ones
            reader = connection._reader  # noqa: SLF001
            if reader is not None and reader.at_eof():
                await connection.disconnect(nowait=True)


async def close_all(client: RedisCluster) -> None:
    """Close all connections: after an error redis-py takes the client for one that has none."""
    await client.aclose()
    for which in ("nodes_cache", "startup_nodes"):
        await client.nodes_manager.aclose(which)
