"""The command in a process of its own, and all processes that it starts."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

COMMAND = [sys.executable, "-m", "lock_interceptor"]


class Running:
    """A command that runs, and the lines that it prints."""

    def __init__(self, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self.process = process
        self._errors = errors
        self.lines: list[str] = []

    def read_until(self, mark: str) -> str:
        """Read its output up to a line with `mark` in it, and return that line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if mark in line:
                return self.lines[-1]
        raise AssertionError(f"it never said {mark!r} but: {self.lines} {self.errors()}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it alone, as `kill` does."""
        self.process.send_signal(number)

    def errors(self) -> str:
        """What it has written to standard error."""
        self._errors.seek(0)
        return self._errors.read()

    def family(self) -> set[int]:
        """All living processes that it has started, and those that they have, as far as these can be seen."""
        parents = dict(_parents())
        found: set[int] = set()
        new = {self.process.pid}
        while new:
            new = {child for child, parent in parents.items() if parent in new} - found
            found |= new
        return found


@contextlib.contextmanager
def running(*arguments: str, temporary: Path) -> Iterator[Running]:
    """Run the command in the block, with a directory for its temporary files; kill it at the end."""
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1", "COLUMNS": "150"}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(  # noqa: S603 - our own command
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        ) as process,
    ):
        try:
            yield Running(process, errors)
        finally:
            process.kill()


def alive(processes: set[int]) -> set[int]:
    """Those that still run."""
    return {pid for pid, _ in _parents() if pid in processes}


def _parents() -> Iterator[tuple[int, int]]:
    """Each process that runs with its parent's id; one that waits to have its end noticed does not run."""
    listed = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True)  # noqa: S607 - wherever the system has it
    for line in listed.stdout.splitlines():
        pid, parent, state = line.split()
        if not state.startswith("Z"):
            yield int(pid), int(parent)
