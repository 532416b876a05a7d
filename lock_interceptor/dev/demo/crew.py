"""The worker processes: started, watched, killed, and ended whatever happens; by their ids, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from lock_interceptor.dev.demo.journal import JournalReader, now
from lock_interceptor.dev.demo.plan import Queue
from lock_interceptor.dev.demo.record import Execution, Record
from lock_interceptor.dev.demo.worker import WorkerConfig

MODULE = "lock_interceptor.dev.demo.worker"
_STOP_SECONDS = 3.0
_LOG_LINES = 15


class DemoError(RuntimeError):
    """Raised when the demo itself cannot go on, so that nothing was measured."""


@dataclass(slots=True)
class Member:
    """One worker process."""

    name: str
    process: subprocess.Popen[bytes]
    journal: JournalReader
    record: Record
    log: Path
    killed: bool = field(default=False)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid


class Crew:
    """The workers of a run; leaving the block ends them all.

    Should this process be killed, they end by themselves: each one watches a pipe that only this process
    has the other end of.
    """

    def __init__(self, folder: Path, address: str, redis_url: str) -> None:
        self._folder = folder
        self._address = address
        self._redis_url = redis_url
        self.members: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """End all: politely at first, since a worker gives back what it holds."""
        running = [member.process for member in self.members if member.process.poll() is None]
        try:
            for process in running:
                process.terminate()
            deadline = time.monotonic() + _STOP_SECONDS
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(deadline - time.monotonic(), 0))
        finally:
            for member in self.members:
                member.process.kill()
                member.process.wait()
                if member.process.stdin is not None:
                    member.process.stdin.close()

    def start(self, name: str, record: Record, queue: Queue) -> Member:
        """Start a worker; what it notes down goes to `record` with each `read`."""
        journal, log = self._folder / f"worker-{name}.jsonl", self._folder / f"worker-{name}.log"
        config = WorkerConfig(self._address, self._redis_url, str(journal), queue)
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [sys.executable, "-m", MODULE, config.to_json()],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this process, which then ends its workers
            )
        member = Member(name, process, JournalReader(journal), record, log)
        self.members.append(member)
        return member

    def read(self) -> None:
        """Take in what the workers have noted down.

        Raises:
            DemoError: a worker has ended that should not have.
        """
        for member in self.members:
            member.record.feed(member.name, member.journal.read())
            if not member.killed and (code := member.process.poll()) is not None:
                end = "\n".join(member.log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
                raise DemoError(f"worker {member.name} ended by itself with code {code}\n{end}")

    def ready(self) -> bool:
        """Whether all have begun to work."""
        self.read()
        return all(member.name in member.record.ready for member in self.members)

    def kill(self, member: Member, *, holding: int) -> float | None:
        """Kill a worker with SIGKILL while it runs at least so many bodies; None if it does not just now.

        It is stopped first, so that nothing can change between the look and the kill.
        """
        member.process.send_signal(signal.SIGSTOP)
        os.waitpid(member.pid, os.WUNTRACED)
        member.record.feed(member.name, member.journal.read())
        if len(member.record.running(member.name)) < holding:
            member.process.send_signal(signal.SIGCONT)
            return None
        member.killed = True
        member.process.kill()
        member.process.wait()
        at = now()
        # what it wrote before it was stopped is all there is
        member.record.killed(member.name, at)
        return at

    def victims(self) -> Iterator[Member]:
        """Those that run locked activities, the busiest first."""

        def bodies(member: Member) -> list[Execution]:
            return member.record.running(member.name)

        locked = [member for member in self.members if not member.killed and bodies(member)]
        yield from sorted(locked, key=lambda member: -len(bodies(member)))
