"""Three worker processes and one lock of three: never more than three at once, even if one is killed."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import history
from crash_worker import LIMIT
from history import Expectations
from stage import Stage, until
from temporalio import workflow

from lock_interceptor import LockStoreUnavailable
from lock_interceptor.store import HolderState

LEASE = 3
WORKFLOWS = 55
EXECUTIONS_EACH = 10
IN_FLIGHT = 6


@workflow.defn
class ManyAtOnce:
    """Runs the locked activity many times in parallel."""

    @workflow.run
    async def run(self, scene: str) -> list[int]:
        return await asyncio.gather(
            *(
                workflow.execute_activity(
                    "work",
                    scene,
                    schedule_to_close_timeout=timedelta(minutes=2),
                    # how the server notices that a worker is gone
                    heartbeat_timeout=timedelta(seconds=3),
                )
                for _ in range(EXECUTIONS_EACH)
            )
        )


@contextlib.contextmanager
def worker_processes(
    stage: Stage, count: int, recorded: history.Run
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many workers; those that still run at the end have to end well."""
    url = stage.settings.redis_url
    assert url is not None
    environment = {
        **os.environ,
        **recorded.environment,
        "APPLICATION_NAME": stage.settings.application_name,
        "REDIS_URL": url.get_secret_value(),
        "LOCK_LEASE_SECONDS": str(LEASE),
        "LOCK_RETRY_INTERVAL": "1",
    }
    script = Path(__file__).with_name("crash_worker.py")
    command = [sys.executable, str(script), stage.temporal.address, stage.task_queue]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)  # noqa: S603 - ours
            processes.append(process)
        yield processes
        alive = [process for process in processes if process.poll() is None]
        for process in alive:
            process.communicate(timeout=20)
        assert {process.returncode for process in alive} == {0}
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@dataclass
class Audit:
    """What the lock itself says, asked again and again."""

    most: int = 0
    samples: int = 0
    holders: tuple[HolderState, ...] = field(default=())
    clashes: list[str] = field(default_factory=list)

    def take(self, holders: tuple[HolderState, ...]) -> None:
        """Note who holds the lock now."""
        self.holders = holders
        self.samples += 1
        self.most = max(self.most, len(holders))
        slots = sorted(holder.slot for holder in holders)
        if slots != sorted(set(slots) & set(range(LIMIT))):
            self.clashes.append(str(holders))

    def holds(self, pid: int) -> list[HolderState]:
        """The holders in a process."""
        return [holder for holder in self.holders if holder.party.worker.startswith(f"{pid}@")]


@contextlib.asynccontextmanager
async def audited(stage: Stage) -> AsyncIterator[Audit]:
    """Look at the lock all the while."""
    audit = Audit()

    async def look() -> None:
        while not over.is_set():
            # this machine is busy enough for an answer to be late now and then
            with contextlib.suppress(LockStoreUnavailable):
                audit.take((await stage.state("crash")).holders)
            await asyncio.sleep(0.01)

    over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(look())
        try:
            yield audit
        finally:
            over.set()


def most_at_once(intervals: Path, ends: dict[int, float]) -> int:
    """The most bodies that ran at one moment, by their own notes; `ends` are of killed processes."""
    began: dict[tuple[str, str], float] = {}
    changes: list[tuple[float, int]] = []
    for line in intervals.read_text().splitlines():
        what, pid, token, at = line.split()
        if what == "begin":
            began[pid, token] = float(at)
        else:
            changes += [(began.pop((pid, token)), 1), (float(at), -1)]
    for (pid, _), at in began.items():
        changes += [(at, 1), (ends[int(pid)], -1)]
    most = running = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


async def test_a_killed_worker(stage: Stage) -> None:
    """The limit holds throughout, everything completes, and what the dead one held is free soon."""
    with (
        history.recording(stage.scene / "history", stage.redis) as recorded,
        worker_processes(stage, 3, recorded) as (victim, *others),
    ):
        async with stage.worker(workflows=[ManyAtOnce]), audited(stage) as audit:
            turns = asyncio.Semaphore(IN_FLIGHT)

            async def one() -> list[int]:
                async with turns:
                    return await stage.client.execute_workflow(
                        ManyAtOnce.run,
                        str(stage.scene),
                        id=f"crash-{uuid4()}",
                        task_queue=stage.task_queue,
                    )

            all_of_them = asyncio.gather(*(one() for _ in range(WORKFLOWS)))
            intervals = stage.scene / "intervals"
            await until(
                lambda: (
                    intervals.exists()
                    and all(f"begin {process.pid} " in intervals.read_text() for process in (victim, *others))
                ),
                "work in each process",
                30,
            )

            stage.cue(f"freeze-{victim.pid}")
            stuck = timedelta(seconds=0.2)
            await until(
                lambda: any(holder.held_for > stuck for holder in audit.holds(victim.pid)),
                "a lock that the victim holds",
            )
            victim.kill()
            victim.wait()
            killed = time.monotonic()
            recorded.killed(victim.pid)
            await until(lambda: not audit.holds(victim.pid), "the slots of the victim", LEASE + 2)

            tokens = [token for each in await asyncio.wait_for(all_of_them, 60) for token in each]

    enough = {
        "grants": WORKFLOWS * EXECUTIONS_EACH,
        "waits": 50,
        "faults": 1,
        "clients": 3,
        "leases run out": 1,
    }
    recorded.check(Expectations(at_least=enough, at_most={"lost": 0}, poll=1.2))
    assert len(set(tokens)) == len(tokens) == WORKFLOWS * EXECUTIONS_EACH
    assert audit.samples > 200
    assert not audit.clashes
    assert audit.most == LIMIT
    assert most_at_once(intervals, {victim.pid: killed}) == LIMIT
