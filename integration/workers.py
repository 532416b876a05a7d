"""Where `history_worker` runs: in a container, or in a process of this machine."""

import asyncio
import contextlib
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self
from uuid import uuid4

from engine import ROOT, CommandError, docker_soon
from history import Run
from history.hooks import VARIABLE
from stack import PROJECT, Stack

PATIENCE = 30
"""Seconds for a graceful end."""


class HistoryWorker(ABC):
    """One of them, as the test sees it: by its process id, and by its notes in the history's directory."""

    def __init__(self, pid: int, directory: Path, run: Run) -> None:
        self.pid = pid
        self._directory = directory
        self._run = run

    @property
    def began(self) -> int:
        """How many bodies have begun in it."""
        return self._count("body")

    @property
    def working(self) -> int:
        """How many bodies run in it."""
        return self.began - self._count("body_end")

    @property
    def ready(self) -> bool:
        """Whether it has begun to work."""
        return (self._directory / f"ready-{self.pid}").exists()

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Its bodies do not end."""
        file = self._directory / f"hang-{self.pid}"
        file.touch()
        try:
            yield
        finally:
            file.unlink()

    async def kill(self) -> None:
        """End it without a chance to say anything."""
        await self._kill()
        self._run.killed(self.pid)

    @abstractmethod
    async def _kill(self) -> None:
        """End it, and return when it has ended."""

    @abstractmethod
    async def stop(self) -> None:
        """Let it shut down gracefully, as a deploy does."""

    @abstractmethod
    async def alive(self) -> bool:
        """Whether it runs."""

    @abstractmethod
    async def last_words(self) -> str:
        """The end of its log."""

    @abstractmethod
    async def remove(self) -> None:
        """End it, whatever it does, and leave nothing of it."""

    def _count(self, what: str) -> int:
        path = self._directory / f"client-{self.pid}.jsonl"
        return path.read_bytes().count(f'"what":"{what}",'.encode()) if path.exists() else 0


class WorkerContainer(HistoryWorker):
    """In a container of the stack."""

    def __init__(self, name: str, pid: int, directory: Path, run: Run) -> None:
        super().__init__(pid, directory, run)
        self.name = name

    @classmethod
    async def start(cls, stack: Stack, environment: Mapping[str, str], directory: Path, run: Run) -> Self:
        """Start one."""
        name = f"{PROJECT}-history-worker-{uuid4().hex[:8]}"
        variables = {**environment, VARIABLE: "/history"}
        options = [word for each in variables.items() for word in ("--env", "=".join(each))]
        options += ["--volume", f"{directory}:/history", "--name", name]
        await stack.compose_soon("run", "--detach", "--no-deps", *options, "history-worker")
        pid = await docker_soon("inspect", "--format", "{{.State.Pid}}", name)
        return cls(name, int(pid), directory, run)

    async def _kill(self) -> None:
        await docker_soon("kill", self.name)
        await docker_soon("wait", self.name)

    async def stop(self) -> None:
        """See base class."""
        await docker_soon("stop", "--time", str(PATIENCE), self.name)
        assert await docker_soon("wait", self.name) == "0\n", await self.last_words()

    async def alive(self) -> bool:
        """See base class."""
        return await docker_soon("inspect", "--format", "{{.State.Running}}", self.name) == "true\n"

    async def last_words(self) -> str:
        """See base class."""
        return f"{self.name}:\n{await docker_soon('logs', '--tail', '40', self.name, errors=True)}"

    async def remove(self) -> None:
        """See base class."""
        with contextlib.suppress(CommandError):
            await docker_soon("rm", "--force", "--volumes", self.name)


class WorkerProcess(HistoryWorker):
    """In a process of this machine."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, directory: Path, run: Run) -> None:
        super().__init__(process.pid, directory, run)
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, environment: Mapping[str, str], directory: Path, run: Run) -> Self:
        """Start one."""
        log = directory / f"worker-{uuid4()}.log"
        variables = {**os.environ, **environment, **run.environment, "PYTHONPATH": str(ROOT / "tests")}
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                ROOT / "integration/history_worker.py",
                env=variables,
                stdout=output,
                stderr=output,
            )
        return cls(process, log, directory, run)

    async def _kill(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """See base class."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            assert await self._process.wait() == 0, await self.last_words()

    async def alive(self) -> bool:
        """See base class."""
        return self._process.returncode is None

    async def last_words(self) -> str:
        """See base class."""
        return f"process {self.pid}:\n{self._log.read_text(errors='replace')[-3000:]}"

    async def remove(self) -> None:
        """See base class."""
        if self._process.returncode is None:
            await self._kill()
