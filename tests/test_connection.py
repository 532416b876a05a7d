"""How a store reaches one Redis server, what it says when it does not, and what it leaves behind."""

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from proxy import TcpProxy
from redis_tools import connections, eventually, new_claim, open_store, settings_for, take
from servers import command, wait_until

from lock_interceptor import LockConfigurationError, LockInterceptor, LockStoreUnavailable
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST, free_ports
from lock_interceptor.redis_store import RedisLockStore


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    """A server with a password for the default user, and a second user."""
    users = ["--requirepass", "right", "--user", "ada", "on", ">secret", "~*", "&*", "+@all"]
    with RedisServer(*users) as server:
        yield server


@pytest.mark.parametrize(
    ("url", "values"),
    [
        ("redis://:right@{}/0", {}),
        ("redis://ada:secret@{}/0", {}),
        ("redis://{}/3", {"redis_password": "right"}),
        ("redis://:wrong@{}/0", {"redis_password": "right"}),
        ("redis://:wrong@{}/0", {"redis_username": "ada", "redis_password": "secret"}),
        ("redis://:right@{}?db=2&socket_timeout=100&decode_responses=no&protocol=3", {}),
        (None, {"redis_password": "right", "redis_db": 5}),
        (None, {"redis_username": "ada", "redis_password": "secret"}),
    ],
)
async def test_every_way_to_log_in_works(
    guarded: RedisServer, url: str | None, values: dict[str, object]
) -> None:
    """URL and single settings say the same things; a login set on its own goes before the URL's."""
    place = f"{HOST}:{guarded.port}"
    values = values if url else {"redis_host": HOST, "redis_port": guarded.port, **values}
    async with open_store(settings_for(url and url.format(place), **values)) as store:
        await store.check()
        claim = new_claim()
        await take(store, claim)
        assert await store.release(claim)


async def test_the_database_is_the_one_that_is_set(valkey: RedisServer) -> None:
    """A lock in one database is free in another, whether the number stands in the URL or on its own."""
    url = f"redis://{HOST}:{valkey.port}"
    claim = new_claim()
    values = {"redis_host": HOST, "redis_port": valkey.port, "redis_db": 7}
    async with (
        open_store(f"{url}/7") as first,
        open_store(settings_for(None, **values)) as same,
        open_store(f"{url}/8") as other,
    ):
        await take(first, claim)
        assert (await same.inspect(claim.lock)).holders
        assert not (await other.inspect(claim.lock)).holders


async def test_a_unix_socket_works(tmp_path: Path) -> None:
    """A server may be reached by its socket's path."""
    socket = tmp_path / "redis.sock"
    with RedisServer("--unixsocket", str(socket)):
        async with open_store(f"unix://{socket}") as store:
            await store.check()
            await take(store, new_claim())
        assert str(socket) in repr(store)


@pytest.mark.parametrize(
    ("url", "values"),
    [
        ("redis://:wrong@{}", {}),
        ("redis://{}", {}),
        ("redis://{}", {"redis_password": "wrong"}),
        ("redis://nobody:right@{}", {}),
        (None, {"redis_username": "ada", "redis_password": "right"}),
        (None, {}),
    ],
)
async def test_a_refused_login_names_what_to_look_at(
    guarded: RedisServer, url: str | None, values: dict[str, object]
) -> None:
    """A wrong or missing password, or an unknown user, is a configuration error that names the variables."""
    place = f"{HOST}:{guarded.port}"
    values = values if url else {"redis_host": HOST, "redis_port": guarded.port, **values}
    async with open_store(settings_for(url and url.format(place), **values)) as store:
        with pytest.raises(LockConfigurationError, match=rf"{place}.*REDIS_USERNAME.*REDIS_PASSWORD"):
            await store.check()


@pytest.mark.parametrize("query", ["tiemout=3", "socket_timeout=soon"])
async def test_a_url_that_says_nonsense_is_named(valkey: RedisServer, query: str) -> None:
    """An option in REDIS_URL that does not exist, or has no such value, is a configuration error."""
    async with open_store(f"redis://{HOST}:{valkey.port}?{query}") as store:
        with pytest.raises(LockConfigurationError, match=f"REDIS_URL.*{query.partition('=')[0]}"):
            await store.check()


async def test_an_unreachable_server_may_come_back() -> None:
    """A refused port, an unknown name and silence are "unavailable", each with the address in the text."""
    port = free_ports(1)[0]
    for host in (f"{HOST}:{port}", f"nowhere.invalid:{port}"):
        async with open_store(f"redis://{host}") as store:
            with pytest.raises(LockStoreUnavailable, match=host):
                await store.check()
    with RedisServer() as server, TcpProxy(server.port) as proxy:
        proxy.black_hole()
        async with open_store(proxy.url(), lease=2) as store:
            start = time.monotonic()
            with pytest.raises(LockStoreUnavailable, match=rf"{proxy.port}: no answer in time"):
                await store.check()
            assert time.monotonic() - start < 5
            proxy.heal()
            proxy.cut()
            await store.check()


async def test_connections_that_the_server_closed_go_unnoticed() -> None:
    """A pooled connection that was closed meanwhile, by its idle limit or by hand, is replaced."""
    with RedisServer() as server:
        async with open_store(server) as store:
            await asyncio.gather(*(store.inspect(new_claim().lock) for _ in range(5)))
            assert connections(server)
            command(server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await eventually(lambda: not connections(server), "the end of all connections")
            for _ in range(3):  # the loop has to see it, as it does when time passes
                await asyncio.sleep(0)
            await asyncio.gather(*(store.inspect(new_claim().lock) for _ in range(5)))


async def test_requests_share_a_bounded_number_of_connections() -> None:
    """However many ask at once, a loop has few connections."""
    with RedisServer() as server:
        async with open_store(server) as store:
            claims = [new_claim() for _ in range(200)]
            await asyncio.gather(*(take(store, claim) for claim in claims))
            assert 1 <= len(connections(server)) <= 16


async def test_a_closed_store_leaves_nothing_and_can_be_used_again() -> None:
    """After closing there is no connection and no task; the next call connects again."""
    with RedisServer() as server:
        store = RedisLockStore(settings_for(server.url))
        before = asyncio.all_tasks()
        for _ in range(2):
            claim = new_claim()
            await take(store, claim)
            async with store.wakeups(claim):
                await eventually(lambda: connections(server, kind="pubsub"), "the subscriber")
            await store.release(claim)
            await store.close()
            assert asyncio.all_tasks() == before
            await eventually(lambda: not connections(server), "the end of all connections")
        await store.close()


async def test_a_closed_interceptor_leaves_no_thread() -> None:
    """Closing ends the keeper's thread and its connections too."""
    with RedisServer() as server:
        interceptor = LockInterceptor(settings_for(server.url))
        await interceptor.check()
        keeper = interceptor._keeper  # noqa: SLF001 - there is no other way to see its thread
        for _ in range(2):
            keeper._renewals.submit(interceptor.store.inspect(new_claim().lock)).result(5)  # noqa: SLF001
            assert any(thread.name == "lock_interceptor.keeper" for thread in threading.enumerate())
            await interceptor.close()
            assert not any(thread.name == "lock_interceptor.keeper" for thread in threading.enumerate())
            await eventually(lambda: not connections(server), "the end of all connections")


def test_one_store_serves_one_loop_after_the_other() -> None:
    """A store outlives the event loop that used it, and no warning of an open connection comes up."""
    with RedisServer() as server:
        store = RedisLockStore(settings_for(server.url))
        claim = new_claim()

        async def once() -> int:
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_callback(store.close)
                async with store.wakeups(claim):
                    return (await take(store, claim)).token

        assert asyncio.run(once()) == asyncio.run(once())
        wait_until(lambda: not connections(server), "the end of all connections")
    gc.collect()  # an open connection would warn now
