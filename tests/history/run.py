"""`recording`: one test's history, from the moment it is entered until it is checked."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lock_interceptor.dev import RedisServer

from .audit import Row, in_order, read_log
from .checker import Expectations, Report, check
from .client_log import ClientLog, Note, read_notes
from .hooks import VARIABLE, installed
from .resource import FencedResource


class Run:
    """A history that is being made."""

    def __init__(self, directory: Path, log: ClientLog) -> None:
        self._directory = directory
        self._log = log
        self._logs: dict[Path, int] = {}

    @property
    def environment(self) -> dict[str, str]:
        """What a worker process needs in its environment for `history.install` to take part."""
        return {VARIABLE: str(self._directory)}

    def watch(self, *servers: RedisServer) -> None:
        """Read these servers' logs too: those of before are left out."""
        for server in servers:
            self._logs[server.log] = server.log.stat().st_size if server.log.exists() else 0

    def started(self, server: RedisServer) -> None:
        """Read the log of a server from its beginning."""
        self._logs[server.log] = 0

    @contextlib.contextmanager
    def fault(self, what: str, *, process: int = 0) -> Iterator[None]:
        """Something is broken while entered; with `process` it is one worker that is stopped.

        A name that begins with ``clock`` says that a server's clock is off.
        """
        self._log.note("fault", fault=what, victim=process)
        try:
            yield
        finally:
            self._log.note("healed", fault=what, victim=process)

    def killed(self, process: int) -> None:
        """A worker process was killed: call it when that has happened."""
        self._log.note("killed", victim=process)

    @property
    def resource(self) -> FencedResource:
        """A resource that checks tokens; worker processes have it by `FencedResource()`."""
        return FencedResource(self._directory)

    def rows(self) -> list[Row]:
        """What the servers did so far."""
        return in_order(list(read_log(path, str(path), start)) for path, start in self._logs.items())

    def notes(self) -> list[Note]:
        """What the clients did so far."""
        return read_notes(self._directory)

    def check(self, expectations: Expectations | None = None, **leftovers: int) -> Report:
        """Check what was recorded so far, and print the counts.

        Args:
            expectations: what the run has to have exercised, and by which bounds it is judged.
            leftovers: what is left though nobody holds or waits: ``tasks=0, connections=0``.

        Raises:
            AssertionError: an invariant is violated, or an expectation is not met.
        """
        expected = (expectations or Expectations()).on_this_machine()
        report = check(self.rows(), self.notes(), expected, leftovers)
        print(f"\n{report}")
        assert report.good, str(report)
        return report


@contextlib.contextmanager
def recording(directory: Path, *servers: RedisServer) -> Iterator[Run]:
    """Record what this process, and those that are told to, do with the locks on these servers."""
    directory.mkdir(parents=True, exist_ok=True)
    log = ClientLog(directory)
    try:
        with installed(log):
            run = Run(directory, log)
            run.watch(*servers)
            yield run
    finally:
        log.close()
