"""Connections to the primary that Sentinel names, when it names another one."""

import asyncio

from redis_tools import settings_for
from servers import SentinelSet, info

from lock_interceptor.redis_store.connection import Connections


async def test_a_connection_in_use_follows_to_another_primary() -> None:
    """It goes there the next time, though the old primary answers for ten seconds yet."""
    with SentinelSet() as servers:
        connections = Connections(settings_for(None, redis_sentinel_hosts=servers.sentinel_hosts))
        old = servers.primary
        try:
            pool = connections.client.connection_pool
            in_use = await pool.get_connection()
            assert servers.ask(servers.sentinels[0], "FAILOVER", servers.service) == "OK"
            new = await asyncio.to_thread(servers.wait_for_failover, old.port, 40)
            while (await pool.get_master_address())[1] != new.port:  # noqa: ASYNC110 - the Sentinels change
                await asyncio.sleep(0.01)
            await pool.release(in_use)
            assert await _asked(connections) == new.port
            assert info(old, "replication")["role"] == "master"
        finally:
            await connections.close()


async def _asked(connections: Connections) -> int:
    """The port of the server that answers."""
    return int((await connections.client.info("server"))["tcp_port"])
