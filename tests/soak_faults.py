"""How each fault of a soak is brought about, and healed."""

import asyncio
import contextlib
import fcntl
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import redis_troubles as troubles
from fault_load import Load
from fault_load_process import LoadWorker
from history import Run
from servers import command, wait_until
from soak_arenas import Arena, SentinelArena, Standalone
from soak_schedule import LEASE, Strike
from soak_worker import AFTER, BEFORE, LONGER

PATIENCE = 30.0
"""Seconds within which a server does what it is told, whatever else is wrong with it."""
WORKERS = 3


class Faults:
    """What can be done to the processes, data, network and servers of one round."""

    def __init__(self, arena: Arena, run: Run, loaded: Load) -> None:
        self._arena, self._run, self._loaded = arena, run, loaded
        self._struck: set[int] = set()
        self._after = False

    def start_worker(self) -> LoadWorker:
        """One more process, of the version that is rolled out last."""
        if self._after:
            return self._loaded.start(locks=AFTER, LOCK_LEASE_SECONDS=LEASE * LONGER)
        return self._loaded.start(locks=BEFORE)

    def hang(self, *, on: bool) -> None:
        """Whether bodies go on until they are stopped, or may end."""
        for worker in self._loaded.workers:
            if worker.alive and not worker.ending:
                with contextlib.suppress(OSError):  # it ends at this moment
                    worker.order("hang", value=on)

    # -- workers

    @contextlib.contextmanager
    def _victim(self, strike: Strike) -> Iterator[LoadWorker]:
        """A process that nothing else happens to."""
        workers = [
            each
            for each in self._loaded.workers
            if each.alive and not each.ending and each.pid not in self._struck
        ]
        worker = workers[int(strike.pick * len(workers))]
        self._struck.add(worker.pid)
        try:
            yield worker
        finally:
            self._struck.discard(worker.pid)

    async def kill_worker(self, strike: Strike) -> None:
        with self._victim(strike) as worker:
            await worker.kill()
        self.start_worker()

    async def stop_worker(self, strike: Strike) -> None:
        with self._victim(strike) as worker, worker.stopped():
            # not while it has what all others need to write
            while not await _free(Path(self._run.environment["LOCK_HISTORY"], "resource.lock")):
                os.kill(worker.pid, signal.SIGCONT)
                await asyncio.sleep(0.01)
                os.kill(worker.pid, signal.SIGSTOP)
            await asyncio.sleep(strike.seconds)

    async def trouble_worker(self, strike: Strike, order: str) -> None:
        """A worker makes trouble for itself.

        It is noted as a fault of no process in particular: unlike one that is stopped, this worker has to
        tell its bodies of their losses in time.
        """
        with self._victim(strike) as worker, self._run.fault(strike.kind.name):
            worker.order(order, strike.seconds)
            await asyncio.sleep(strike.seconds)

    async def change_version(self, _: Strike) -> None:
        """Replace all processes, one after the other: meanwhile some ask by the old limits and lease."""
        self._after = not self._after
        old = [each for each in self._loaded.workers if each.alive and not each.ending]
        for worker in old:
            self.start_worker()
            while worker.pid in self._struck:  # noqa: ASYNC110 - somebody else's
                await asyncio.sleep(0.05)
            if worker.alive:
                self._struck.add(worker.pid)
                await worker.stop()

    # -- data

    async def order(self, what: str, *words: object) -> None:
        """Send a command to all primaries, until they have done it."""
        with self._run.fault(what):
            await self._told(lambda: [command(each, *words) for each in self._arena.primaries()], what)

    async def delete(self, strike: Strike) -> None:
        def delete() -> None:
            keys = [
                (server, key)
                for server in self._arena.primaries()
                for key in command(server, "KEYS", f"*{self._loaded.application}*")
            ]
            if keys:
                server, key = sorted(keys, key=lambda pair: pair[1])[int(strike.pick * len(keys))]
                command(server, "DEL", key)

        with self._run.fault("DEL"):
            await self._told(delete, "a deletion")

    async def _told(self, tell: Callable[[], object], what: str) -> None:
        await asyncio.to_thread(wait_until, lambda: (tell(), True)[1], what, PATIENCE)

    # -- network

    async def break_net(self, strike: Strike, how: Callable[[Any], object]) -> None:
        """Do something to the network that heals by being undone."""
        net = self._standalone.proxy
        with self._run.fault(strike.kind.name):
            how(net)
            await asyncio.sleep(strike.seconds)
            net.heal()
            net.tear_next_replies(0)
            if strike.kind.name == "connections half-open":
                net.cut()  # or they stay so for ever

    # -- servers

    @contextlib.asynccontextmanager
    async def paused(self, server: Any, strike: Strike) -> AsyncIterator[None]:
        """SIGSTOP of a server, and SIGCONT at the end."""
        with self._run.fault(strike.kind.name):
            server.pause()
            try:
                yield
            finally:
                server.resume()

    async def pause(self, strike: Strike) -> None:
        async with self.paused(self._arena.primaries()[0], strike):
            await asyncio.sleep(strike.seconds)

    async def kill_server(self, strike: Strike) -> None:
        server = self._standalone.server
        with self._run.fault(strike.kind.name):
            server.kill()
            await asyncio.sleep(strike.seconds)
            await asyncio.to_thread(server.start)

    async def trouble(self, strike: Strike, provoke: troubles.Trouble) -> None:
        """One of a server's own troubles."""
        trouble = provoke(self._standalone.server)
        with self._run.fault(strike.kind.name):
            await asyncio.to_thread(trouble.__enter__)
            try:
                await asyncio.sleep(strike.seconds)
            finally:
                await asyncio.to_thread(trouble.__exit__, None, None, None)

    async def fail_over(self, strike: Strike) -> None:
        """SIGKILL of a primary; it comes back as a replica."""
        with self._run.fault(strike.kind.name):
            old = await asyncio.to_thread(self._arena.fail_over)
            await asyncio.sleep(strike.seconds)
            await asyncio.to_thread(self._arena.bring_back, old)
        await asyncio.to_thread(self._arena.settle)

    async def replace(self, strike: Strike) -> None:
        with self._run.fault(strike.kind.name):
            await asyncio.to_thread(self._arena.replace)
        await asyncio.to_thread(self._arena.settle)

    async def pause_primary(self, strike: Strike) -> None:
        """It is replaced meanwhile, does what was sent to it when it goes on, and becomes a replica."""
        arena = self._sentinel
        old = arena.primary
        async with self.paused(old, strike):
            begun = time.monotonic()
            await asyncio.to_thread(arena.wait_for_failover, old)
            await asyncio.sleep(max(begun + strike.seconds - time.monotonic(), 0))
        with self._run.fault("a stale primary"):
            await asyncio.to_thread(arena.wait_until_replica, old)
        await asyncio.to_thread(arena.settle)

    async def pause_replica(self, strike: Strike) -> None:
        replicas = self._sentinel.replicas
        async with self.paused(replicas[int(strike.pick * len(replicas))], strike):
            await asyncio.sleep(strike.seconds)
        await asyncio.to_thread(self._arena.settle)

    async def kill_sentinel(self, strike: Strike) -> None:
        sentinels = self._sentinel.sentinels
        sentinel = sentinels[int(strike.pick * len(sentinels))]
        with self._run.fault(strike.kind.name):
            sentinel.kill()
            await asyncio.sleep(strike.seconds)
            await asyncio.to_thread(sentinel.start)
        await asyncio.to_thread(self._arena.settle)

    @property
    def _standalone(self) -> Standalone:
        assert isinstance(self._arena, Standalone)
        return self._arena

    @property
    def _sentinel(self) -> SentinelArena:
        assert isinstance(self._arena, SentinelArena)
        return self._arena


async def _free(lock: Path, seconds: float = 0.5) -> bool:
    """Whether nobody has a file locked for as long as that."""
    deadline = time.monotonic() + seconds
    with lock.open("a") as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.005)
