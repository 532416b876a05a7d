"""A push connection that is silently dead while requests get through, as behind a bad firewall."""

import asyncio

import pytest
from patience import waiting
from picky_proxy import PickyProxy
from redis_tools import connections, eventually, line_length, new_claim, open_store, take
from structlog.testing import capture_logs

from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store import wakeups

SOON = 10.0


def _subscribers(server: RedisServer) -> set[str]:
    return {client["id"] for client in connections(server, kind="pubsub") if client["sub"] != "0"}


async def test_a_dead_push_connection_costs_one_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that is lost is made up for by the next poll, and then another connection takes over."""
    monkeypatch.setattr(wakeups, "SILENCE", 0.5)
    monkeypatch.setattr(wakeups, "ANSWER", 0.3)
    with RedisServer() as server, PickyProxy(server.port, "SUBSCRIBE") as proxy, capture_logs() as logs:
        async with open_store(proxy.url()) as store:
            holder = new_claim()
            await take(store, holder)
            async with waiting(store, new_claim(holder.lock), interval=0.5) as granted:
                await eventually(lambda: _subscribers(server), "the subscription")
                await eventually(lambda: line_length(store, holder), "a waiter")
                dead = _subscribers(server)
                proxy.black_hole()
                await store.release(holder)
                second = (await asyncio.wait_for(granted, SOON)).claim
                async with waiting(store, new_claim(holder.lock), interval=60) as granted_by_call:
                    await eventually(lambda: line_length(store, holder), "a waiter")
                    await eventually(lambda: _gave_up(logs), "a connection that is given up")
                    proxy.heal()
                    await eventually(lambda: _subscribers(server) - dead, "another subscription")
                    await store.release(second)
                    await asyncio.wait_for(granted_by_call, SOON)


def _gave_up(logs: list[dict[str, object]]) -> bool:
    return any(entry["event"] == "lock.wakeups_interrupted" for entry in logs)
