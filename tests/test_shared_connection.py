"""`SharedConnection`: everybody gets the answer to what he asked, whatever happens to the others."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from proxy import TcpProxy
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis_tools import connections, eventually, settings_for
from servers import command, info
from stage import until

from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store.connection import Connections
from lock_interceptor.redis_store.shared_connection import SharedConnection

SLOW = "local x = 0 for i = 1, 3e7 do x = x + i end return 'slow'"
"""A script that takes the server some hundred milliseconds."""


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of this test's own, whose connections can be counted and cut."""
    with RedisServer() as server:
        yield server


@contextlib.asynccontextmanager
async def sharing(url: str, lease: int = 30) -> AsyncIterator[SharedConnection]:
    """The connection that a store with these settings shares; a lease of 30 s means a timeout of 1 s."""
    all_of_them = Connections(settings_for(url, lease=lease))
    assert all_of_them.shared is not None
    try:
        yield all_of_them.shared
    finally:
        await all_of_them.close()


@pytest.fixture
async def shared(server: RedisServer) -> AsyncIterator[SharedConnection]:
    """A connection to the server."""
    async with sharing(server.url) as shared:
        yield shared


async def test_everybody_gets_his_own_answer(shared: SharedConnection) -> None:
    """Also with errors in between, and whatever the size of an answer."""

    async def ask(number: int) -> bool:
        text = f"{number}-" * (1 + number % 7 * 5000)
        if number % 5 == 0:
            with pytest.raises(ResponseError, match=f"no. {number}"):
                await shared.request(("EVAL", f"return redis.error_reply('ERR no. {number}')", 0))
            return True
        answer: str = await shared.request(("ECHO", text))
        return answer == text

    for _ in range(3):
        assert all(await asyncio.gather(*map(ask, range(300))))


async def test_requests_of_one_turn_go_together(server: RedisServer, shared: SharedConnection) -> None:
    """A hundred at once cost the server a few reads, and one connection."""
    await shared.request(("PING",))
    before = int(info(server, "stats")["total_reads_processed"])
    await asyncio.gather(*(shared.request(("ECHO", str(number))) for number in range(100)))
    assert int(info(server, "stats")["total_reads_processed"]) - before <= 10
    assert len(connections(server)) == 1


async def test_who_is_cancelled_takes_no_answer_from_others(shared: SharedConnection) -> None:
    """The connection stays, and what is sent afterwards is executed afterwards."""
    await shared.request(("SET", "who", "nobody"))
    for turns in range(6):
        slow = asyncio.create_task(shared.request(("EVAL", SLOW, 0)))
        late = asyncio.create_task(shared.request(("SET", "who", f"cancelled {turns}")))
        for _ in range(turns):
            await asyncio.sleep(0)
        slow.cancel()
        late.cancel()
        await shared.request(("SET", "last", str(turns)))
        assert await shared.request(("GET", "last")) == str(turns)
        await asyncio.wait({slow, late})
    assert await shared.request(("GET", "who")) == "cancelled 5"


async def test_a_server_that_hangs(server: RedisServer) -> None:
    """All who ask hear it in time, and what it says later on is nobody's answer."""
    async with sharing(server.url, lease=3) as shared:
        assert await shared.request(("ECHO", "before")) == "before"
        server.pause()
        try:
            start = time.monotonic()
            asked = [asyncio.create_task(shared.request(("ECHO", str(number)))) for number in range(20)]
            done, _ = await asyncio.wait(asked, timeout=20)
            assert len(done) == 20
            assert time.monotonic() - start >= 0.25
            assert {type(task.exception()) for task in asked} == {RedisTimeoutError}
            with pytest.raises((RedisTimeoutError, TimeoutError)):
                await shared.request(("ECHO", "still"))
        finally:
            server.resume()

        async def answers() -> bool:
            with contextlib.suppress(RedisError, TimeoutError):
                return bool(await shared.request(("ECHO", "after")) == "after")
            return False

        await until(answers, "the server")
        assert await shared.request(("ECHO", "and on")) == "and on"


async def test_a_connection_that_is_cut(server: RedisServer, shared: SharedConnection) -> None:
    """Whoever waits is told, whatever was sent or not; the next request connects anew."""
    for turns in range(8):
        await shared.request(("PING",))
        command(server, "CLIENT", "PAUSE", 10_000, "WRITE")  # so that nothing is answered before
        asked = [asyncio.create_task(shared.request(("SET", "one", str(number)))) for number in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.to_thread(command, server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        command(server, "CLIENT", "UNPAUSE")
        done, _ = await asyncio.wait(asked, timeout=20)
        assert len(done) == len(asked)
        assert all(isinstance(task.exception(), RedisConnectionError) for task in asked)
        assert await shared.request(("ECHO", "again")) == "again"


async def test_an_idle_connection_that_the_server_closes(
    server: RedisServer, shared: SharedConnection
) -> None:
    """Nobody runs into it: it is noticed while nobody asks."""
    for _ in range(3):
        await shared.request(("PING",))
        command(server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await eventually(lambda: shared._line is not None and shared._line.wire.lost.done(), "the end")  # noqa: SLF001
        assert await shared.request(("ECHO", "on")) == "on"


@pytest.mark.parametrize("swallow", [TcpProxy.drop_requests, TcpProxy.drop_replies])
async def test_a_proxy_that_swallows_something(
    server: RedisServer, swallow: Callable[[TcpProxy], None]
) -> None:
    """Nobody gets an answer that is not his own, although what follows goes through again."""
    marks = itertools.count()

    async def ask(shared: SharedConnection, text: str) -> bool:
        mark = next(marks)
        try:
            return bool(
                await shared.request(("EVAL", "return {ARGV[1], ARGV[2]}", 0, mark, text), mark) == text
            )
        except RedisError:
            return True

    with TcpProxy(server.port) as proxy:
        async with sharing(proxy.url()) as shared:
            for number in range(10):
                await shared.request(("PING",))
                swallow(proxy)
                asked = [asyncio.create_task(ask(shared, f"lost {number}-{one}")) for one in range(3)]
                await asyncio.sleep(0.005 * number)
                proxy.heal()
                asked += [asyncio.create_task(ask(shared, f"sent {number}-{one}")) for one in range(3)]
                assert all(await asyncio.gather(*asked))


@pytest.mark.parametrize(
    "said",
    [
        b"*2\r\n$1\r\n7\r\n+OK\r\n+one too many\r\n",
        b"*2\r\n$2\r\n77\r\n+OK\r\n",
        b"+OK\r\n",
        b"no protocol\r\n",
        b"$3\r\n\xff\xfe\xfd\r\n",
        b"*2\r\n+cut",
        b"",
    ],
    ids=["too much", "not the mark", "no mark", "not the protocol", "not text", "half an answer", "nothing"],
)
async def test_a_server_that_is_none(said: bytes) -> None:
    """Whatever answers there, who asks gets an error or an answer, in time."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while b"GET" not in (asked := await reader.read(65536)):
                if not asked:
                    return
                writer.write(b"+OK\r\n" * asked.count(b"*"))
            writer.write(said)
            await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, sharing(f"redis://127.0.0.1:{port}", lease=3) as shared:
        for _ in range(3):
            try:
                answer = await asyncio.wait_for(shared.request(("GET", "it"), 7), 20)
            except RedisConnectionError:
                continue
            assert answer == "OK"
            assert b"too many" in said  # but in its own place


async def test_closing_while_others_ask(server: RedisServer) -> None:
    """They get an error, at whatever moment, and nothing is left open."""
    for turns in range(12):
        async with sharing(server.url) as shared:
            asked = [asyncio.create_task(shared.request(("EVAL", SLOW, 0)))]
            asked += [asyncio.create_task(shared.request(("PING",))) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0)
            await shared.close()
            done, _ = await asyncio.wait(asked, timeout=20)
            assert len(done) == len(asked)
            for task in asked:
                assert task.exception() is None or isinstance(task.exception(), RedisConnectionError)
    await eventually(lambda: not connections(server), "the end of all connections")
