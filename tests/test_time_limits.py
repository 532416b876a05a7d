"""Only a server that is silent counts as silent: not one that is asked late, and not one that is busy."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from proxy import TcpProxy
from redis.asyncio import Redis
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis_tools import eventually, new_claim, open_store, take
from topologies import KINDS, Topology, topology

from lock_interceptor import LockStoreUnavailable, RedisLockStore
from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store.client_connections import with_our_connections
from lock_interceptor.redis_store.permits import Permits
from lock_interceptor.redis_store.shared_connection import SharedConnection
from lock_interceptor.redis_store.time_limits import Countdown, within

BLOCKED = 1.6
"""Seconds: longer than what a request may take with a lease of 5 s."""
LEASE = 5


@pytest.fixture(scope="module", params=KINDS)
def servers(request: pytest.FixtureRequest) -> Iterator[Topology]:
    """Each kind of Redis."""
    with topology(request.param) as servers:
        yield servers


@pytest.fixture(params=["primary", "failover"])
async def store(request: pytest.FixtureRequest, servers: Topology) -> AsyncIterator[RedisLockStore]:
    """A store with and without confirmed grants, so that each way to Redis is gone."""
    async with open_store(servers.settings_for(lease=LEASE, durability=request.param)) as store:
        yield store


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13])
async def test_a_loop_that_was_blocked(store: RedisLockStore, servers: Topology, turns: int) -> None:
    """Whenever the loop stops for longer than the limit while the server answers: all have their locks."""
    await take(store, servers.claim())
    asked = [asyncio.create_task(take(store, servers.claim())) for _ in range(20)]
    for _ in range(turns):
        await asyncio.sleep(0)
    time.sleep(BLOCKED)  # noqa: ASYNC251 - that is what this is about
    await asyncio.gather(*asked)


@pytest.mark.parametrize("turns", [0, 1, 3, 6, 12])
async def test_a_loop_that_was_blocked_while_connecting(
    store: RedisLockStore, servers: Topology, turns: int
) -> None:
    """The same for the first requests, which have to connect, and to find the server."""
    asked = [asyncio.create_task(take(store, servers.claim())) for _ in range(20)]
    for _ in range(turns):
        await asyncio.sleep(0)
    time.sleep(BLOCKED)  # noqa: ASYNC251 - as above
    await asyncio.gather(*asked)


@pytest.mark.parametrize("durability", ["primary", "failover"])
async def test_a_burst(durability: str) -> None:
    """Thousands who ask at once are served one after the other, however short the limit for each is."""
    with RedisServer() as server:
        async with open_store(server, lease=1, durability=durability) as store:
            await take(store, new_claim())
            await asyncio.gather(*(take(store, new_claim()) for _ in range(5_000)))


@contextlib.asynccontextmanager
async def slow_server(delay: float, answers: int) -> AsyncIterator[str]:
    """A server that takes so long for each ``GET``, one after the other, and answers so many."""
    left = answers

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while asked := await reader.read(65536):
                writer.write(b"+OK\r\n" * (asked.count(b"SETINFO") + asked.count(b"ECHO")))
                for _ in range(asked.count(b"GET")):
                    await asyncio.sleep(delay)
                    if left:
                        left -= 1
                        writer.write(b"+OK\r\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextlib.asynccontextmanager
async def sharing(url: str, timeout: float) -> AsyncIterator[SharedConnection]:
    """A shared connection with this limit."""
    client = with_our_connections(Redis.from_url(url, socket_timeout=5, protocol=2, decode_responses=True))
    shared = SharedConnection(client.connection_pool.make_connection, timeout=timeout, patience=5)
    try:
        yield shared
    finally:
        await shared.close()


async def test_each_answer_gives_the_others_time() -> None:
    """A server that is slow, and answers, is waited for by all, though the last waits for several limits."""
    async with slow_server(0.3, answers=8) as url, sharing(url, 0.8) as shared:
        assert await asyncio.gather(*(shared.request(("GET", "it")) for _ in range(8))) == ["OK"] * 8


async def test_who_asks_gives_nobody_time() -> None:
    """A server that has fallen silent is noticed although new requests are sent to it all the time."""
    async with slow_server(0, answers=3) as url, sharing(url, 0.4) as shared:
        asked = list[asyncio.Task[object]]()
        deadline = time.monotonic() + 20
        while not any(task.done() and task.exception() for task in asked) and time.monotonic() < deadline:
            asked.append(asyncio.create_task(shared.request(("GET", "it"))))
            await asyncio.sleep(0.05)
        assert time.monotonic() < deadline
        await asyncio.wait(asked)
        errors = [type(error) for task in asked if (error := task.exception())]
        assert errors[:1] == [RedisTimeoutError]
        assert len(errors) == len(asked) - 3


async def test_an_idle_connection_is_not_silent() -> None:
    """Where nothing is asked nothing has to be answered, and the next request has its whole time."""
    async with slow_server(0.3, answers=3) as url, sharing(url, 0.5) as shared:
        for _ in range(3):
            assert await shared.request(("GET", "it")) == "OK"
            await asyncio.sleep(0.9)


async def test_a_queue_for_connections_is_no_failure() -> None:
    """On connections of a pool, too: however long the queue for them is, all are served."""
    with RedisServer() as server, TcpProxy(server.port) as proxy:
        async with open_store(proxy.url(), lease=10, durability="failover") as store:
            await take(store, new_claim())
            proxy.delay(0.1)
            await asyncio.gather(*(take(store, new_claim()) for _ in range(300)))


@pytest.mark.parametrize("durability", ["primary", "failover"])
async def test_a_silent_server_is_told_to_all(durability: str) -> None:
    """Those in the queue for a connection do not wait for their turns with a server that answers nobody."""
    with RedisServer() as server:
        async with open_store(server, lease=2, durability=durability) as store:
            await take(store, new_claim())
            server.pause()
            try:
                asked = [asyncio.create_task(take(store, new_claim())) for _ in range(3_000)]
                done, _ = await asyncio.wait(asked, timeout=20)
            finally:
                server.resume()
            assert len(done) == len(asked)
            assert {type(task.exception()) for task in asked} == {LockStoreUnavailable}


async def test_a_limit_counts_the_time_of_the_loop() -> None:
    """A loop that is blocked again and again uses up a step each time, and not the time that it takes."""
    loop, over = asyncio.get_running_loop(), list[float]()
    countdown = Countdown(0.4, lambda: over.append(loop.time()))
    countdown.start()
    for _ in range(4):
        time.sleep(0.3)  # noqa: ASYNC251 - as above
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not over
    countdown.start()
    countdown.stop()
    await asyncio.sleep(0.6)
    assert not over
    start = loop.time()
    countdown.start()
    await eventually(lambda: over, "the end")
    assert over[0] - start >= 0.4
    countdown.cancel()


async def test_a_limit_ends_what_takes_too_long() -> None:
    """It raises TimeoutError and lets a cancellation from outside pass, like the one of asyncio."""
    with pytest.raises(TimeoutError):
        async with within(0.05):
            await asyncio.sleep(60)
    async with within(60):
        pass

    async def wait() -> None:
        async with within(60):
            await asyncio.sleep(60)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_permits_are_passed_on() -> None:
    """In the order of asking; who is cancelled while waiting, or when his turn has come, keeps none."""
    permits, order = Permits(1, 60), list[int]()
    go = asyncio.Event()

    async def use(number: int) -> None:
        async with permits.one():
            order.append(number)
            await go.wait()

    tasks = [asyncio.create_task(use(number)) for number in range(6)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.sleep(0)
    go.set()
    await asyncio.sleep(0)
    tasks[2].cancel()  # it may just have been given the permit
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order in ([0, 3, 4, 5], [0, 2, 3, 4, 5])
    await use(6)
    assert order[-1] == 6
