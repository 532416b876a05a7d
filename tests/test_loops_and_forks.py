"""What a store opens goes with the event loop it was opened in, and stays with the process that opened it."""

import asyncio
import contextlib
import gc
import multiprocessing
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import pytest
import redis
from certificates import tls_files
from redis_tools import LEASE, eventually, new_claim, settings_for, stand_in_line, take
from servers import ClusterSet, SentinelSet, require_redis, wait_until

from lock_interceptor import LockSettings, RedisLockStore
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.store import Claim

KINDS = ["one", "confirmed", "tls", "sentinel", "cluster"]


@dataclass
class Place:
    """Servers, and how to reach them."""

    servers: list[RedisServer]
    address: dict[str, Any]
    tls: bool = False

    def settings(self) -> LockSettings:
        """For locks that no other test has."""
        return settings_for(None, lease=30, **self.address)

    def connections(self) -> int:
        """How many connections our clients have to all of the servers."""
        return sum(map(self._connections, self.servers))

    def _connections(self, server: RedisServer) -> int:
        how = {"ssl": True, "ssl_cert_reqs": "none"} if self.tls else {}
        with redis.Redis(host=HOST, port=server.port, protocol=2, decode_responses=True, **how) as client:
            client.response_callbacks.clear()
            lines = client.execute_command("CLIENT LIST").splitlines()
        found = [dict(field.split("=", 1) for field in line.split(" ") if "=" in field) for line in lines]
        # servers have connections among themselves, too; older ones do not tell
        return sum(
            each["cmd"] != "client|list" and each.get("lib-name", "redis-py") == "redis-py" for each in found
        )


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Each kind of Redis."""
    if request.param == "sentinel":
        with SentinelSet() as found:
            hosts = {"redis_sentinel_hosts": found.sentinel_hosts}
            yield Place([found.primary, *found.replicas, *found.sentinels], hosts)
    elif request.param == "cluster":
        with ClusterSet() as nodes:
            yield Place(nodes.nodes, {"redis_port": nodes.nodes[0].port, "redis_cluster": True})
    elif request.param == "tls":
        files = tls_files(tmp_path_factory.mktemp("tls"))
        options = files.server_options(client_certificates=False)
        with RedisServer(*options, binary=require_redis(), tls=True) as server:
            address = {"redis_port": server.port, "redis_tls": True, "redis_tls_ca_file": files.ca}
            yield Place([server], address, tls=True)
    else:
        durability = "primary" if request.param == "one" else "failover"
        with RedisServer() as server:
            yield Place([server], {"redis_port": server.port, "durability": durability})


async def use(store: RedisLockStore, stack: contextlib.AsyncExitStack) -> tuple[Claim, Claim]:
    """Hold a lock, renew it, stand in line for it and listen: on every kind of connection."""
    claim = new_claim()
    await take(store, claim)
    assert await store.renew(claim, lease=LEASE)
    waiter = new_claim(claim.lock)
    await stand_in_line(store, waiter)
    event = await stack.enter_async_context(store.wakeups(waiter))
    await asyncio.wait_for(event.wait(), 10)
    return claim, waiter


def run_and_end(main: Callable[[], Any]) -> None:
    """As most programs do."""
    asyncio.run(main())


def run_and_close(main: Callable[[], Any]) -> None:
    """Close a loop and leave everything in it as it is."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # it tells of tasks that were never done
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.mark.parametrize("run", [run_and_end, run_and_close])
def test_what_a_loop_opened_goes_with_it(place: Place, run: Callable[[Callable[[], Any]], None]) -> None:
    """A store that is used in one loop after the other, and never closed, keeps neither loops nor sockets."""
    store, loops = RedisLockStore(place.settings()), list[weakref.ref[Any]]()
    wait_until(lambda: not place.connections(), "the end of what was before")

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await use(store, contextlib.AsyncExitStack())

    for _ in range(5):
        run(main)
    if run is run_and_close:
        run_and_end(main)  # that is when it is noticed
    wait_until(lambda: not place.connections(), "the end of all connections")
    gc.collect()  # what is open yet would warn now
    assert [loop() for loop in loops] == [None] * len(loops)


async def test_a_store_that_was_closed_is_opened_again(place: Place) -> None:
    """Closing ends everything, as often as it is done, and the next request opens what it needs."""
    store = RedisLockStore(place.settings())
    for _ in range(2):
        async with contextlib.AsyncExitStack() as stack:
            await use(store, stack)
        await asyncio.gather(store.close(), store.close())
        await eventually(lambda: not place.connections(), "the end of all connections")


def in_child(orders: Connection, store: RedisLockStore, claim: Claim, *, uses: bool) -> None:
    """Leave everything as it is, or use the store as well; then wait for the end."""
    result: object = None
    if uses:

        async def main() -> tuple[list[str], str]:
            held = [holder.owner for holder in (await store.inspect(claim.lock)).holders]
            async with contextlib.AsyncExitStack() as stack:
                await use(store, stack)
            await store.close()
            return held, "used"

        result = asyncio.run(main())
    gc.collect()
    orders.send(result)
    orders.recv()


@contextlib.asynccontextmanager
async def child(store: RedisLockStore, claim: Claim, *, uses: bool) -> Any:
    """A child of a fork while entered; tells what it saw."""
    context, (ours, theirs) = multiprocessing.get_context("fork"), multiprocessing.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer versions warn of threads
        process = context.Process(target=in_child, args=(theirs, store, claim), kwargs={"uses": uses})
        process.start()
    try:
        assert await asyncio.to_thread(ours.poll, 20)
        yield ours.recv()
    finally:
        ours.send("end")
        await asyncio.to_thread(process.join, 10)
        assert process.exitcode == 0


@pytest.mark.parametrize("uses", [False, True])
async def test_a_child_keeps_no_connection(place: Place, uses: bool) -> None:
    """What the parent closes is closed at the server while the child lives on, whatever the child does."""
    store = RedisLockStore(place.settings())
    await eventually(lambda: not place.connections(), "the end of what was before")
    async with contextlib.AsyncExitStack() as stack:
        claim, _ = await use(store, stack)
        async with child(store, claim, uses=uses) as seen:
            assert seen == (([claim.owner], "used") if uses else None)
            await stack.aclose()
            await store.close()
            await eventually(lambda: not place.connections(), "the end of all connections")


@pytest.mark.parametrize("uses", [False, True])
async def test_a_parent_is_not_disturbed(place: Place, uses: bool) -> None:
    """Its connections and subscriptions go on as they are while a child lives and when it has ended."""
    store = RedisLockStore(place.settings())
    async with contextlib.AsyncExitStack() as stack:
        claim, waiter = await use(store, stack)
        before = place.connections()
        called = await stack.enter_async_context(store.wakeups(new_claim(claim.lock)))
        called.clear()
        async with child(store, claim, uses=uses):
            assert await store.renew(claim, lease=LEASE)
            await eventually(lambda: place.connections() == before, "its connections")
        assert await store.renew(claim, lease=LEASE)
        assert place.connections() == before
        event = await stack.enter_async_context(store.wakeups(waiter))
        event.clear()
        assert await store.release(claim)
        await asyncio.wait_for(event.wait(), 10)
    await store.close()
