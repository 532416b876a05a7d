"""How long until locks go on: after a killed worker, a Redis restart, a Sentinel failover."""

import asyncio
import contextlib
import importlib
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis
from contestants import installed_peers, new_claim, settings_for
from measuring import Bench
from waiters import Line

from lock_interceptor import LockSettings, LockStoreUnavailable
from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.store import Claim, Granted

HERE = Path(__file__).parent
OURS = "lock_interceptor"


async def measure(bench: Bench) -> None:
    _, missing = installed_peers()
    names = [OURS, "redis-py Lock", "python-redis-lock"]
    for text in missing:
        bench.results.remark(text)
        names = [name for name in names if not text.startswith(name)]
    for number in range(bench.rounds):
        with RedisServer() as server:
            for lease in bench.size((3,), (1,)):
                for who in bench.order(bench.size(names, names[:1]), number):
                    bench.say(f"round {number + 1}, a killed {who} with a lease of {lease} s")
                    late = await _killed(server, who, lease)
                    bench.add("a slot in use again after a kill", f"lease {lease} s", who, "s", late)
        bench.say(f"round {number + 1}, a restart")
        await _restart(bench)
        for profile in bench.size(("primary", "failover", "strict"), ()):
            bench.say(f"round {number + 1}, a failover with the profile {profile}")
            await _failover(bench, profile)


async def _killed(server: RedisServer, who: str, lease: int) -> float:
    """Seconds from SIGKILL of the holder's process until somebody who waits has the lock."""
    lock = f"kill-{secrets.token_hex(4)}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "holder_process.py"), who, server.url, lock, str(lease),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"held\n"
        async with _waiter(server, who, lock, lease) as granted:
            await asyncio.sleep(0.3)  # it is in line by then
            process.kill()
            killed = time.monotonic()
            return max(await asyncio.wait_for(granted, 60) - killed, 0.0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def _waiter(server: RedisServer, who: str, lock: str, lease: int) -> AsyncIterator[asyncio.Task[float]]:
    async def now() -> float:
        return time.monotonic()

    async def ours() -> float:
        line = Line(settings_for(server.url, lease=timedelta(seconds=lease)))
        try:
            got: float = await line.run(new_claim(lock), now)
        finally:
            await line.close()
        return got

    async def redis_py() -> float:
        client = redis.asyncio.Redis.from_url(server.url, protocol=2)
        async with client.lock(lock, timeout=lease):
            got = await now()
        await client.aclose()
        return got

    def blocking() -> float:
        client = redis.Redis.from_url(server.url, protocol=2, socket_timeout=None)
        held = importlib.import_module("redis_lock").Lock(client, lock, expire=lease)
        held.acquire()
        got = time.monotonic()
        held.release()
        client.close()
        return got

    calls: dict[str, Any] = {
        OURS: ours, "redis-py Lock": redis_py, "python-redis-lock": lambda: asyncio.to_thread(blocking),
    }  # fmt: skip
    task = asyncio.create_task(calls[who]())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True)
class Accident:
    """What happens to the servers: what has to be settled before, the crash, and what is done about it."""

    settle: Callable[[], object]
    crash: Callable[[], object]
    heal: Callable[[], object]


async def _restart(bench: Bench) -> None:
    with RedisServer("--appendonly", "yes", "--appendfsync", "always") as server:
        settings = settings_for(server.url, lease=timedelta(seconds=2))

        await _pause(bench, settings, "restart with a log", Accident(lambda: None, server.kill, server.start))


async def _failover(bench: Bench, profile: str) -> None:
    # one Sentinel set is enough for everybody, and it is no package; pytest comes with it
    tests = str(HERE.parent / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    servers, topologies = map(importlib.import_module, ("servers", "topologies"))
    with servers.SentinelSet() as sentinels:
        settings = LockSettings(
            _env_file=None,
            redis_sentinel_hosts=sentinels.sentinel_hosts,
            durability=profile,
            lease=timedelta(seconds=2),
        )

        old = sentinels.primary

        def settle() -> None:
            """Replicas get what is written after their first copy only when they have reported."""
            key = lock_key("lock", new_claim("known").lock)
            servers.wait_until(lambda: topologies.in_sync(old, 2, key), "replicas in sync")

        def heal() -> None:
            if profile == "strict":  # it needs all replicas that there may be, and so the old primary again
                sentinels.wait_for_failover(old.port)
                old.start()
                servers.command(old, "REPLICAOF", "127.0.0.1", sentinels.primary.port)

        await _pause(bench, settings, f"failover, profile {profile}", Accident(settle, old.kill, heal))


async def _pause(bench: Bench, settings: LockSettings, case: str, accident: Accident) -> None:
    """From the crash until a lock that is known, and one that is new, can be taken again."""
    store = RedisLockStore(settings)
    known = new_claim("known")
    await _take(store, known, settings)
    await store.release(known)
    await asyncio.to_thread(accident.settle)
    began = time.monotonic()
    accident.crash()
    healing = asyncio.create_task(asyncio.to_thread(accident.heal))
    new, old = await asyncio.gather(
        _take(store, new_claim("new"), settings, began), _take(store, new_claim("known"), settings, began)
    )
    await healing
    await store.close()
    bench.add("pause until a new lock is granted", case, OURS, "s", new)
    bench.add("pause until a known lock is granted", case, OURS, "s", old)


async def _take(store: RedisLockStore, claim: Claim, settings: LockSettings, began: float = 0.0) -> float:
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        with contextlib.suppress(LockStoreUnavailable):
            if isinstance(await store.acquire(claim, lease=settings.lease), Granted):
                return time.monotonic() - began
        await asyncio.sleep(0.01)
    raise TimeoutError("no lock within 40 s")
