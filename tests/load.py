"""Load on a lock: worker processes to put it there, and what their bodies noted."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stage import Stage, until

WORKER = Path(__file__).with_name("load_worker.py")


@dataclass(frozen=True)
class WorkerProcess:
    """A worker in a process of its own."""

    process: subprocess.Popen[bytes]

    async def stop(self) -> None:
        """Let it shut down gracefully, as a deploy does."""
        await asyncio.to_thread(self.process.communicate, timeout=30)
        assert self.process.returncode == 0

    async def kill(self) -> None:
        """End it without a chance to say anything."""
        self.process.kill()
        await asyncio.to_thread(self.process.communicate, timeout=30)


@contextlib.asynccontextmanager
async def worker_process(
    stage: Stage, way: str, permits: int = 20, **variables: str
) -> AsyncIterator[WorkerProcess]:
    """A worker that has begun to poll; stopped at the end if it still runs."""
    url = stage.settings.redis_url
    assert url is not None
    environment = {
        **os.environ,
        "APPLICATION_NAME": stage.settings.application_name,
        "REDIS_URL": url.get_secret_value(),
        **variables,
    }
    arguments = [stage.temporal.address, stage.task_queue, str(stage.scene), str(permits), way]
    process = subprocess.Popen(  # noqa: ASYNC220, S603 - ours, and started in a moment
        [sys.executable, str(WORKER), *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,  # logs: a pipe that nobody reads would fill up and stop it
    )
    worker = WorkerProcess(process)
    try:
        await until(lambda: [str(process.pid)] in notes(stage.scene, "ready"), "a worker that polls", 30)
        yield worker
        if process.poll() is None:
            await worker.stop()
    finally:
        await worker.kill()


def notes(scene: Path, file: str) -> list[list[str]]:
    """The lines that bodies have left so far, as words."""
    path = scene / file
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@dataclass(frozen=True)
class Intervals:
    """When bodies ran, by the machine's monotonic clock."""

    times: Sequence[tuple[float, float]]

    @classmethod
    def of(cls, scene: Path) -> "Intervals":
        """What `load_worker.work` has noted."""
        return cls([(float(began), float(ended)) for _, began, ended in notes(scene, "done")])

    def most_at_once(self) -> int:
        """The most bodies that ran at one moment."""
        changes = sorted(change for began, ended in self.times for change in ((began, 1), (ended, -1)))
        most = running = 0
        for _, change in changes:
            running += change
            most = max(most, running)
        return most

    def slot_use(self, limit: int, start: float, end: float) -> float:
        """Part of the time of `limit` slots that bodies filled between two moments."""
        used = sum(max(min(ended, end) - max(began, start), 0.0) for began, ended in self.times)
        return used / (limit * (end - start))

    def gaps(self, limit: int, start: float, end: float) -> list[float]:
        """For each body that began between two moments: how long a slot had been free before."""
        ends = sorted(ended for _, ended in self.times)
        begins = sorted(began for began, _ in self.times)
        return [
            began - ends[number - limit]
            for number, began in enumerate(begins)
            if number >= limit and start <= began <= end
        ]
