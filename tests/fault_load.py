"""Load on locks while something breaks: processes full of clients, to be stopped, killed and replaced.

::

    with history.recording(tmp_path / "history", server) as run:
        async with load(run, {"REDIS_URL": server.url}) as loaded:
            with run.fault("paused"):
                ...
            await loaded.until_progress()
        run.check(Expectations(at_least={"grants": 50}, poll=loaded.poll))
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from fault_load_plan import LoadLock, Plan
from fault_load_process import PATIENCE, LoadWorker
from history import Run

LEASE = 1.5
POLL = 0.4
SHORT = 0.5
"""Seconds: a lock whose bodies take no longer is soon everybody's in turn."""

ONE = LoadLock("one", 1)
THREE = LoadLock("three", 3)
LONG = LoadLock("long", 3, (0.5, 2.5))
"""Held for so long that leases have to be renewed."""
LOCKS = (ONE, THREE, LONG)


@dataclass
class Load:
    """What is going on."""

    run: Run
    environment: dict[str, str]
    plan: Plan
    workers: list[LoadWorker] = field(default_factory=list)

    @property
    def application(self) -> str:
        """Whose locks they are."""
        return self.environment["APPLICATION_NAME"]

    @property
    def poll(self) -> float:
        """For `Expectations`: the longest time between two polls of a waiter."""
        return float(self.environment["LOCK_RETRY_INTERVAL"]) * 1.2

    @property
    def lease(self) -> float:
        """Seconds."""
        return float(self.environment["LOCK_LEASE_SECONDS"])

    def start(self, **changes: Any) -> LoadWorker:
        """One more process; `changes` are fields of `Plan`, and variables of its environment."""
        variables = {name: str(changes.pop(name)) for name in list(changes) if name.isupper()}
        environment = {**self.environment, **self.run.environment, **variables}
        worker = LoadWorker(self.run, replace(self.plan, **changes), environment)
        self.workers.append(worker)
        return worker

    def progress(self, since: int = 0) -> list[list[str]]:
        """What clients have noted: process, client, lock, ``began``, ``ended`` or how an attempt failed."""
        path = Path(self.run.environment["LOCK_HISTORY"], "progress")
        if not path.exists():
            return []
        with path.open("rb") as notes:
            notes.seek(since)
            return [line.decode().split() for line in notes.read().splitlines()]

    def mark(self) -> int:
        """Now, for `progress`."""
        path = Path(self.run.environment["LOCK_HISTORY"], "progress")
        return path.stat().st_size if path.exists() else 0

    def outcomes(self, since: int = 0) -> Counter[str]:
        """How often a body ``began`` and ``ended``, and how often attempts failed by type of error."""
        return Counter(what for _, _, _, what in self.progress(since))

    def grants(self, lock: str | None = None, since: int = 0) -> int:
        """How many bodies have begun."""
        return sum(note[3] == "began" and lock in (None, note[2]) for note in self.progress(since))

    def bodies(self, workers: Iterable[LoadWorker] | None = None) -> int:
        """How many bodies run in these processes, by default in all that live."""
        chosen = self.workers if workers is None else workers
        alive = {str(worker.pid) for worker in chosen if worker.alive}
        notes = [what for pid, _, _, what in self.progress() if pid in alive]
        return notes.count("began") - notes.count("ended")

    @contextlib.asynccontextmanager
    async def hanging(self, workers: Sequence[LoadWorker] | None = None) -> AsyncIterator[None]:
        """While entered, bodies of these processes, or of all, do not end.

        At the beginning there are as many of them as can be.
        """
        chosen = self.workers if workers is None else workers
        users = Counter(
            number % len(worker.plan.locks) for worker in chosen for number in range(worker.plan.clients)
        )
        full = sum(min(lock.limit, users[number]) for number, lock in enumerate(self.plan.locks))
        since = self.mark()
        for worker in chosen:
            worker.order("hang", value=True)
        await self.until(lambda: self.outcomes(since)["hang"] == len(chosen), "workers that obey")
        await self.until(lambda: self.bodies(chosen) >= full, "bodies that hang")
        yield
        for worker in chosen:
            if worker.alive:
                worker.order("hang", value=False)

    async def until_progress(
        self, timeout: float = PATIENCE, workers: Iterable[LoadWorker] | None = None
    ) -> None:
        """Wait until every client of these workers has been granted again, on every lock held briefly.

        That is when a fault is healed. By default of all that live.
        """
        since = self.mark()
        chosen = list(self.workers if workers is None else workers)

        def missing() -> set[tuple[str, str]]:
            seen = {(pid, client) for pid, client, _, what in self.progress(since) if what == "began"}
            return {each for worker in chosen if worker.alive for each in _clients(worker)} - seen

        await self.until(lambda: not missing(), lambda: f"grants for {sorted(missing())}", timeout)

    async def until(self, condition: Any, what: Any, timeout: float = PATIENCE) -> Any:
        """Wait for a condition; an error if a worker ends by itself meanwhile."""
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            for worker in self.workers:
                assert worker.alive or worker.ending, worker.last_words()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {timeout} s: {what() if callable(what) else what}")
            await asyncio.sleep(0.02)
        return value

    async def stop(self) -> None:
        """End all, gracefully."""
        assert all(worker.alive or worker.ending for worker in self.workers)
        await asyncio.gather(*(worker.stop() for worker in self.workers if worker.alive))


def _clients(worker: LoadWorker) -> set[tuple[str, str]]:
    locks = worker.plan.locks
    return {
        (str(worker.pid), str(number))
        for number in range(worker.plan.clients)
        if locks[number % len(locks)].hold[1] <= SHORT
    }


@contextlib.asynccontextmanager
async def load(
    run: Run,
    settings: Mapping[str, str],
    *,
    processes: int = 2,
    clients: int = 6,
    locks: Sequence[LoadLock] = LOCKS,
    lease: float = LEASE,
    poll: float = POLL,
    max_wait: float = 5.0,
    careless: bool = False,
) -> AsyncIterator[Load]:
    """Load that has begun to run everywhere; ended gracefully, and it has to end well.

    Args:
        run: the history that it is written to.
        settings: variables: ``REDIS_URL`` or the like, ``LOCK_DURABILITY`` and whatever differs.
        processes: how many to begin with; `Load.start` makes more.
        clients: of each process. Client n takes lock n modulo their number, so with three locks there
            are two of each process at each lock, one of them with threaded bodies.
        locks: which there are, and how they are used.
        lease: seconds.
        poll: seconds between polls.
        max_wait: seconds that an attempt waits before it yields, and comes back for the same place.
        careless: as in `Plan`.
    """
    environment = {
        "APPLICATION_NAME": f"load-{uuid4()}",
        "LOCK_LEASE_SECONDS": str(lease),
        "LOCK_RETRY_INTERVAL": str(poll),
        **settings,
    }
    loaded = Load(run, environment, Plan(tuple(locks), clients, max_wait, careless=careless))
    try:
        for _ in range(processes):
            loaded.start()
        await loaded.until_progress()
        yield loaded
        await loaded.stop()
    finally:
        for worker in loaded.workers:
            worker.end()
