"""The fault matrix on one server: what may happen to the server under load."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
import redis_troubles as troubles
from fault_load import LEASE, LOCKS
from fault_matrix import Inject, Row, Scene, for_a_while, play
from servers import command, redis_binaries, require_redis

from lock_interceptor.dev import RedisServer

MOST = sum(lock.limit for lock in LOCKS) - 1
"""So many hold when nobody gives back: all slots, and one may just be changing hands."""
NO_MEMORY = 2.0
SHORT_PAUSE = 4.0
"""Seconds of a lease that outlasts a pause of one second by far."""


def trouble(what: str, provoke: troubles.Trouble, seconds: float = 0.6) -> Inject:
    """One of the server's troubles, for a while."""

    async def inject(scene: Scene) -> None:
        with scene.fault(what), provoke(scene.server):
            await for_a_while(seconds)

    return inject


def repeated(what: str, strike: Callable[[Scene], object], times: int = 3) -> Inject:
    """Something that is over at once, several times."""

    async def inject(scene: Scene) -> None:
        for _ in range(times):
            with scene.fault(what):
                strike(scene)
            await for_a_while(0.3)

    return inject


def killed_for(seconds: float) -> Inject:
    """SIGKILL, and a start some time later, while all that can be held is held."""

    async def inject(scene: Scene) -> None:
        async with scene.loaded.hanging():
            with scene.fault("server killed"):
                scene.server.kill()
                await for_a_while(seconds)
                scene.server.start()
            await for_a_while(LEASE / 2)

    return inject


def paused_for(seconds: float, lost: int = 0) -> Inject:
    """SIGSTOP and SIGCONT, while all that can be held is held."""

    async def inject(scene: Scene) -> None:
        async with scene.loaded.hanging():
            with scene.fault("server paused"):
                scene.server.pause()
                await for_a_while(seconds)
                scene.server.resume()
            await losses(scene, lost)

    return inject


def while_held(what: str, strike: Callable[[Scene], object], lost: int) -> Inject:
    """Something that is over at once and costs so many leases, while all that can be held is held."""

    async def inject(scene: Scene) -> None:
        async with scene.loaded.hanging():
            with scene.fault(what):
                strike(scene)
            await losses(scene, lost)

    return inject


async def losses(scene: Scene, count: int) -> None:
    """Wait until so many bodies have been stopped because their locks were lost."""
    await scene.loaded.until(lambda: scene.loaded.outcomes()["LockLost"] >= count, "losses")


def command_once(*words: object) -> Callable[[Scene], object]:
    """Send this to the server."""
    return lambda scene: command(scene.server, *words)


def delete_one(scene: Scene) -> None:
    """Delete the lock that is held longest."""
    (key,) = [key for key in locks(scene) if "long" in key]
    command(scene.server, "DEL", key)


def kill_scripts(scene: Scene) -> None:
    """Kill whatever runs just now: mostly nothing, or what has written something and goes on."""
    for _ in range(100):
        with contextlib.suppress(redis.ResponseError):
            command(scene.server, "SCRIPT", "KILL")


async def memory_full(scene: Scene) -> None:
    """For longer than a lease, so that it shows that holders are renewed, and that they can give back."""
    async with contextlib.AsyncExitStack() as hanging:
        await hanging.enter_async_context(scene.loaded.hanging())
        with scene.fault("maxmemory"), troubles.no_memory(scene.server):
            await for_a_while(NO_MEMORY)
            await hanging.aclose()
            await scene.loaded.until(lambda: not held(scene), "what is given back")


async def evicted(scene: Scene) -> None:
    """A server that evicts takes locks for a cache: one that is held goes with the rest."""
    before = len(locks(scene))
    async with scene.loaded.hanging():
        with scene.fault("evicted"), troubles.evicting(scene.server) as fill:

            def one_is_gone() -> bool:
                fill()
                return len(locks(scene)) < before

            await scene.loaded.until(one_is_gone, "a lock that is evicted")
        await losses(scene, 1)


def locks(scene: Scene) -> list[str]:
    """The keys of the locks."""
    return [key for key in command(scene.server, "KEYS", "*") if scene.loaded.application in key]


def held(scene: Scene) -> int:
    """How many hold something."""
    return sum(command(scene.server, "ZCOUNT", key, "1e12", "9.999e12") for key in locks(scene))


async def idle_connections_closed(scene: Scene) -> None:
    with scene.fault("timeout 1"):
        command(scene.server, "CONFIG", "SET", "timeout", 1)
        await for_a_while(2.5)


ROWS = [
    Row(
        "killed, AOF always",
        killed_for(0.3),
        {"servers": 2},
        {"grants forgotten": 0},
        ("--appendonly", "yes", "--appendfsync", "always"),
    ),
    Row(
        "killed, AOF everysec",
        killed_for(0.3),
        {"servers": 2},
        {"grants forgotten": 0},
        ("--appendonly", "yes", "--appendfsync", "everysec"),
    ),
    Row("killed, nothing kept", killed_for(0.3), {"servers": 2, "histories begun anew": 3}, forgets=True),
    Row("paused, shortly", paused_for(1.0), {"unclear answers": 1}, {"lost": 0}, how={"lease": SHORT_PAUSE}),
    Row("paused, 1.5 leases", paused_for(1.5 * LEASE, MOST), {"lost": MOST, "told": 1}),
    Row(
        "FLUSHALL",
        while_held("FLUSHALL", command_once("FLUSHALL"), MOST),
        {"lost": MOST, "grants forgotten": MOST},
        forgets=True,
    ),
    Row(
        "DEL of a lock",
        while_held("DEL", delete_one, 2),
        {"lost": 2, "grants forgotten": 2},
        {"lost": 3},
        how={"lease": SHORT_PAUSE},
        forgets=True,
    ),
    Row(
        "SCRIPT FLUSH",
        repeated("SCRIPT FLUSH", command_once("SCRIPT", "FLUSH"), 5),
        {"faults": 5},
        {"lost": 0},
    ),
    Row("SCRIPT KILL", repeated("SCRIPT KILL", kill_scripts), {"faults": 3}, {"lost": 0}),
    Row(
        "CONFIG RESETSTAT",
        repeated("RESETSTAT", command_once("CONFIG", "RESETSTAT")),
        {"faults": 3},
        {"lost": 0},
    ),
    Row(
        "maxmemory",
        memory_full,
        {"unclear answers": 1, "renewals": MOST},
        {"lost": 0, "leases run out": 0},
        how={"lease": NO_MEMORY},
    ),
    Row("maxmemory, allkeys-lru", evicted, {"lost": 1, "grants forgotten": 1}, forgets=True),
    Row("READONLY", trouble("READONLY", troubles.is_replica), {"unclear answers": 1}),
    Row("LOADING", trouble("LOADING", troubles.loading), {"unclear answers": 1}),
    Row("MISCONF", trouble("MISCONF", troubles.cannot_save), {"unclear answers": 1}),
    Row("BUSY", trouble("BUSY", troubles.busy), {"unclear answers": 1}),
    Row("NOREPLICAS", trouble("NOREPLICAS", troubles.too_few_replicas), {"unclear answers": 1}),
    Row("timeout 1", idle_connections_closed, at_most={"lost": 0}),
    Row(
        "CLIENT KILL normal",
        repeated("CLIENT KILL", command_once("CLIENT", "KILL", "TYPE", "normal")),
        {"faults": 3},
    ),
    Row(
        "CLIENT KILL pubsub",
        repeated("CLIENT KILL", command_once("CLIENT", "KILL", "TYPE", "pubsub")),
        {"faults": 3},
        {"lost": 0},
    ),
]
BOTH = {"killed, AOF always", "FLUSHALL", "LOADING", "BUSY", "READONLY"}
"""What the two kinds of server do in different ways."""


def on_servers(rows: list[Row]) -> list[object]:
    """Each row on Valkey, and some on Redis too."""
    return [
        pytest.param(row, kind, id=f"{row.name}-{kind}")
        for row in rows
        for kind in ("valkey", "redis")
        if kind == os.environ.get("MATRIX_ON", "valkey") or row.name in BOTH
    ]


@pytest.mark.parametrize(("row", "kind"), on_servers(ROWS))
async def test_a_server_in_trouble(row: Row, kind: str, tmp_path: Path) -> None:
    """Whatever the server refuses, forgets or does too late: what it has granted holds, and things go on."""
    binary = require_redis() if kind == "redis" else redis_binaries()["valkey"]
    with RedisServer(*troubles.NEEDS, *row.options, binary=binary) as server:
        await play(row, server, tmp_path)
