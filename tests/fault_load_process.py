"""A process full of clients, as the test sees it: to be given orders, stopped, killed and ended."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fault_load_plan import Plan
from fault_load_worker import DRAIN, work
from history import Run

PATIENCE = 20.0
TESTS = Path(__file__).parent

# forked from a process that has imported everything: two workers a test would cost a second by themselves
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["pytest", "fault_load_worker"])


class LoadWorker:
    """A process full of clients."""

    def __init__(self, run: Run, plan: Plan, environment: Mapping[str, str]) -> None:
        self.plan = plan
        self.ending = False
        """It was told to, or is told to die."""
        self._run = run
        self._orders, theirs = _FORKING.Pipe()
        self._process = _FORKING.Process(target=work, args=(plan, dict(environment), theirs), daemon=True)
        with _on_the_path():
            self._process.start()
        theirs.close()
        self.log = Path(run.environment["LOCK_HISTORY"], f"worker-{self.pid}.log")

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, stopped or not."""
        return self._process.is_alive()

    def order(self, what: str, value: Any = None) -> None:
        """Tell it something.

        ``hang``: whether bodies do not end. ``block``: the event loop, for so many seconds.
        ``die in release``: at the next one, ``unsent``, ``sent`` or ``done``. Or one of its `TROUBLES`, for
        so many seconds.
        """
        self.ending = self.ending or what == "die in release"
        self._orders.send((what, value))

    async def kill(self) -> None:
        """SIGKILL."""
        self.ending = True
        self._process.kill()
        await self.died()

    async def died(self) -> None:
        """Wait until it is dead, by whatever it was told, and note that."""
        await asyncio.to_thread(self._process.join, PATIENCE)
        assert self._process.exitcode == -signal.SIGKILL, self.last_words()
        self._run.killed(self.pid)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """SIGSTOP while entered, as a fault of this process."""
        with self._run.fault("stopped", process=self.pid):
            os.kill(self.pid, signal.SIGSTOP)
            try:
                yield
            finally:
                os.kill(self.pid, signal.SIGCONT)

    async def stop(self) -> None:
        """Let it end what it is about, as a deploy does."""
        self.ending = True
        self._orders.close()
        await asyncio.to_thread(self._process.join, DRAIN + PATIENCE)
        assert self._process.exitcode == 0, self.last_words()

    def last_words(self) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"process {self.pid} ended with {self._process.exitcode}\n{text[-3000:]}"

    def end(self) -> None:
        """Whatever it does."""
        self._orders.close()
        self._process.kill()
        self._process.join()
        self._process.close()


@contextlib.contextmanager
def _on_the_path() -> Iterator[None]:
    """The process that the workers are forked from is started at first, and has to find our modules."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
