"""One worker process of the demo: ``python -m lock_interceptor.dev.demo.worker '<WorkerConfig as JSON>'``.

An application, not a part of the library: so it configures logging, and may say what a worker is made of.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import structlog
from temporalio.client import Client
from temporalio.worker import Worker

from lock_interceptor import LockPlugin, RedisLockStore
from lock_interceptor.dev.demo.journal import Journal
from lock_interceptor.dev.demo.plan import MAX_ORDERS, Queue, demo_settings
from lock_interceptor.dev.demo.work import Fulfil, Work
from lock_interceptor.settings import LockSettings
from lock_interceptor.store import Claim, Granted, Queueing, Waiting


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """All that a worker process is told."""

    address: str
    """Of the Temporal server."""
    redis_url: str
    journal: str
    queue: Queue
    """Which tasks it takes: workflows, or activities with their locks or without."""

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From the command line."""
        return cls(**json.loads(text))


class RecordingStore(RedisLockStore):
    """The ordinary store, which also notes down when it was asked and when it answered.

    What happened at the server happened between the two, which is how the order of things can be judged.
    """

    def __init__(self, settings: LockSettings, journal: Journal) -> None:
        super().__init__(settings)
        self._journal = journal

    async def acquire(
        self, claim: Claim, *, lease: timedelta, queueing: Queueing | None = None
    ) -> Granted | Waiting:
        """See base class."""
        self._note("ask", claim)
        answer = await super().acquire(claim, lease=lease, queueing=queueing)
        self._note("answer", claim, token=answer.token if isinstance(answer, Granted) else None)
        return answer

    async def release(self, claim: Claim) -> bool:
        """See base class."""
        self._note("leave", claim)
        return await super().release(claim)

    async def park(self, claim: Claim, *, ticket: int = 0, keep: timedelta) -> None:
        """See base class."""
        self._note("leave", claim)
        await super().park(claim, ticket=ticket, keep=keep)

    def _note(self, event: str, claim: Claim, **facts: Any) -> None:
        """Of orders only: the store may be tried out with claims that belong to nobody."""
        if order := claim.party.workflow:
            self._journal.write(event, order=order, lock=str(claim.lock), **facts)


async def run(config: WorkerConfig) -> None:
    """Work until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    journal = Journal(Path(config.journal))
    settings = demo_settings(config.redis_url, disabled=config.queue != "locked")
    work = Work(journal)
    of_workflows = config.queue == "workflows"
    async with Worker(
        await Client.connect(config.address),
        task_queue=config.queue,
        workflows=[Fulfil] if of_workflows else [],
        activities=[] if of_workflows else [work.post_to_ledger, work.call_api, work.update_tenant],
        max_concurrent_activities=MAX_ORDERS,
        plugins=[LockPlugin(settings, store=RecordingStore(settings, journal))],
    ):
        journal.write("ready")
        await stop.wait()


def _end_with_parent() -> None:
    """The parent holds the other end of standard input: when it is gone, whatever the reason, so are we."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def main(argv: Sequence[str]) -> None:
    """Run the worker that the only argument describes; what it logs goes to standard error."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    asyncio.run(run(WorkerConfig.from_json(argv[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
