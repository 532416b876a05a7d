"""One test's workers and visitors, and the history of what they do with locks.

::

    await scene.watch(container("redis"))
    async with scene.load(workers=3):
        with scene.run.fault("redis paused"):
            ...
        await scene.until_served()
    await scene.conclude("redis paused", at_least={"lost": 1})
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar
from uuid import uuid4

from engine import docker_soon
from fault_matrix import line
from figures import measured
from history import Expectations, Report, Run
from stack import redis_cli
from stage import until
from visitors import ACTIVITIES, Visitors
from workers import HistoryWorker

LEASE = 2.0
POLL = 0.5
SLACK = 4.0
"""Seconds that a busy machine, and a server that goes through its timers, may add to whatever takes time."""
W = TypeVar("W", bound=HistoryWorker)
_LOG = "redis.log(redis.LOG_WARNING, ARGV[1])"


@dataclass
class ServerLog:
    """What a server in a container has logged, in a file."""

    container: str
    log: Path
    begin: str = field(default_factory=lambda: f"begin-{uuid4()}")

    async def mark(self, text: str) -> None:
        """Have something written there."""
        await redis_cli(self.container, "EVAL", _LOG, "0", text)

    async def read(self) -> None:
        """Write the file: everything from the beginning of the test on."""
        end = f"end-{uuid4()}"
        await self.mark(end)

        async def complete() -> str:
            text = await docker_soon("logs", self.container)
            return text if end in text else ""

        text = await until(complete, f"the log of {self.container}")
        _, begin, rest = text.partition(self.begin)
        assert begin, f"{self.container} has not logged since the test began"
        self.log.write_bytes(rest.encode(errors="surrogateescape"))


class Scene(Generic[W]):
    """Everything of one test.

    Args:
        launch: starts a worker with these variables in its environment.
        run: the history.
        visitors: who wants locks.
        directory: where the history is written.
        application: whose locks they are, and the task queue.
    """

    def __init__(
        self,
        launch: Callable[[Mapping[str, str]], Awaitable[W]],
        run: Run,
        visitors: Visitors,
        directory: Path,
        application: str,
    ) -> None:
        self.run = run
        self.visitors = visitors
        self.application = application
        self.workers: list[W] = []
        self.visits: list[tuple[int, int]] = []
        """Who was there with which token, when all have gone."""
        self.settings: dict[str, str] = {}
        """Where Temporal and the locks are."""
        self._launch = launch
        self._directory = directory
        self._logs: list[ServerLog] = []

    async def watch(self, *containers: str) -> None:
        """Judge by what these servers do from now on."""
        for name in containers:
            log = ServerLog(name, self._directory / f"{name}.log")
            await log.mark(log.begin)
            self._logs.append(log)

    async def start(self, **variables: str) -> W:
        """One more worker; `variables` of its environment are in what it differs from others."""
        environment = {
            "TASK_QUEUE": self.application,
            "APPLICATION_NAME": self.application,
            "LOCK_LEASE_SECONDS": str(LEASE),
            "LOCK_RETRY_INTERVAL": str(POLL),
            "LOCK_MAX_WAIT_SECONDS": "5",
            "LOCK_MAX_WAITERS": "50",
            **self.settings,
            **variables,
        }
        worker = await self._launch(environment)
        self.workers.append(worker)
        await self.until(lambda: worker.ready, "a worker that is ready", [worker])
        return worker

    @contextlib.asynccontextmanager
    async def load(
        self,
        *,
        workers: int = 2,
        visitors: int = 12,
        activities: Sequence[str] = ACTIVITIES,
        **variables: str,
    ) -> AsyncIterator[list[W]]:
        """Workers that all have work, and visitors that keep coming; all of them gone at the end."""
        started = await asyncio.gather(*(self.start(**variables) for _ in range(workers)))
        for number in range(visitors):
            await self.visitors.come(activities[number % len(activities)])
        await self.until_served()
        yield started
        self.visits += await self.visitors.done()
        await self.stop()

    @contextlib.asynccontextmanager
    async def hanging(self) -> AsyncIterator[None]:
        """No body ends, and four of them hold all there is to hold: three seats, and the lock for one."""
        with contextlib.ExitStack() as stack:
            for worker in self.workers:
                stack.enter_context(worker.hanging())
            await self.until(lambda: sum(each.working for each in self.workers) >= 4, "four bodies that hang")
            yield

    async def alive(self) -> list[W]:
        """The workers that run."""
        return [worker for worker in self.workers if await worker.alive()]

    async def stop(self) -> None:
        """Stop all workers that are left."""
        await asyncio.gather(*(worker.stop() for worker in await self.alive()))

    async def until_lost(self, worker: W | None = None) -> None:
        """Wait until this worker, or all, have lost what they held: no body runs."""
        workers = self.workers if worker is None else [worker]
        await self.until(lambda: not any(each.working for each in workers), "the end of all leases", workers)

    async def until_served(self, times: int = 3) -> None:
        """Wait until locks have been granted to every living worker again, so many times."""
        alive = await self.alive()
        enough = {worker: worker.began + times for worker in alive}
        await self.until(
            lambda: all(worker.began >= enough[worker] for worker in alive), "locks granted to all", alive
        )

    async def conclude(
        self, what: str, *, at_least: Mapping[str, int], at_most: Mapping[str, int] | None = None
    ) -> Report:
        """Judge the history, and have shown what was injected and what was seen."""
        for log in self._logs:
            await log.read()
            self.run.started(log)  # type: ignore[arg-type] - of a server it needs the log only
        enough = {"grants": 30, "waits": 20, "faults": 1, **at_least}
        report = self.run.check(
            Expectations(at_least=enough, at_most=at_most or {}, poll=POLL * 1.2, slack=SLACK)
        )
        broken = Counter(note.more["fault"] for note in self.run.notes() if note.what == "fault")
        broken["worker killed"] = sum(note.what == "killed" for note in self.run.notes())
        faults = ", ".join(f"{times} x {fault}" for fault, times in broken.items() if times)
        measured(f"{line(what, report)} ({faults or 'nothing was broken'})")
        tokens = [token for _, token in self.visits]
        assert len(set(tokens)) == len(tokens) > 0
        return report

    async def close(self) -> None:
        """End the workers, whatever they do."""
        for worker in self.workers:
            await worker.remove()

    async def until(
        self, condition: Callable[[], object], what: str, workers: Sequence[W] | None = None
    ) -> None:
        """Wait for a condition; whoever waits in vain is told what workers have logged, by default all."""
        try:
            await until(condition, what, 60)
        except TimeoutError as error:
            chosen = self.workers if workers is None else workers
            words = [await worker.last_words() for worker in chosen]
            raise TimeoutError("\n".join([str(error), *words])) from error
