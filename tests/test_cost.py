"""What a lock costs when nobody else wants it."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import SecretStr
from stage import Stage, until
from temporalio import activity
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    Interceptor,
)

from lock_interceptor import LockInterceptor, needs_lock
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST

TIMES = 10


@activity.defn
@needs_lock(lock_name="lock")
async def locked() -> str:
    return "done"


@activity.defn
async def unlocked() -> str:
    return "done"


@asynccontextmanager
async def commands_of(server: RedisServer) -> AsyncIterator[list[str]]:
    """The commands that clients send to a server while entered; complete afterwards."""
    commands: list[str] = []
    reader, monitor = await asyncio.open_connection(HOST, server.port)
    _, other = await asyncio.open_connection(HOST, server.port)
    try:
        monitor.write(b"MONITOR\r\n")
        await reader.readline()
        yield commands
        other.write(b"ECHO that-is-all\r\n")
        while b"that-is-all" not in (line := await reader.readline()):
            # what a script does is marked as Lua's, and costs no round trip
            if found := re.match(rb'\+[0-9.]+ \[\d+ (?!lua)[^\]]+\] "(\w+)"', line):
                commands.append(found[1].decode().upper())
    finally:
        for writer in (monitor, other):
            writer.close()
            await writer.wait_closed()


async def test_two_commands(stage: Stage) -> None:
    """A lock that is free costs two round trips to Redis, one to take it and one to give it back."""
    with RedisServer() as server:
        stage = stage.with_settings(redis_url=SecretStr(server.url))
        async with stage.worker(locked):
            await stage.run("locked")  # connects, and brings the scripts
            async with commands_of(server) as commands:
                for _ in range(TIMES):
                    await stage.run("locked")
    assert commands == ["EVALSHA", "EVALSHA"] * TIMES


async def test_nothing_in_the_history(stage: Stage) -> None:
    """A lock adds no event to the workflow's history, not even when it had to be waited for."""
    histories = []
    async with stage.worker(locked, unlocked):
        for name in ("unlocked", "locked"):
            handle = await stage.start(name)
            await handle.result()
            histories.append(await stage.events(handle))
        async with stage.somebody_else():
            handle = await stage.start("locked", start_to_close=1)
            await stage.failed_attempt(handle, "LockNotAcquired")
        await handle.result()
        histories.append(await stage.events(handle))
    assert histories[0] == histories[1] == histories[2]
    assert histories[0].count("ACTIVITY_TASK_SCHEDULED") == 1


class CountingHeartbeats(ActivityOutboundInterceptor):
    """Counts what is sent to the server."""

    sent = 0

    def heartbeat(self, *details: object) -> None:
        CountingHeartbeats.sent += 1
        super().heartbeat(*details)


class Inbound(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        super().init(CountingHeartbeats(outbound))


class CountsHeartbeats(Interceptor):
    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return Inbound(next)


async def test_no_heartbeat(stage: Stage) -> None:
    """A lock that is free costs no heartbeat."""
    interceptor = LockInterceptor(stage.settings)
    async with stage.worker(locked, interceptors=[CountsHeartbeats(), interceptor]):
        await stage.run("locked", heartbeat=10)
        assert CountingHeartbeats.sent == 0
        async with stage.somebody_else():
            handle = await stage.start("locked", heartbeat=10)
            await until(lambda: CountingHeartbeats.sent, "a heartbeat of the one that waits")
        await handle.result()
    await interceptor.close()
