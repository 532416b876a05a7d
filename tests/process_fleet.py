"""Worker processes of `exit_worker`, as a test sees them, with the application that they serve."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import history
from activities_under_test import Call, CallActivity
from figures import measured
from history import Expectations, Run
from process_scene import SLACK, told_within
from servers import command
from stage import until
from temporalio.client import Client, WorkflowFailureError

from lock_interceptor import RedisLockStore
from lock_interceptor.dev import RedisServer, TemporalServer
from lock_interceptor.lease import clock
from lock_interceptor.store import Claim, Granted, LockId, Queueing
from lock_interceptor.testing import quick_settings

STARTS_WITHIN = 30.0


class Member:
    """One process, with all that it starts."""

    def __init__(self, command: list[str], variables: dict[str, str], stdout: int | IO[Any] | None) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self.process = subprocess.Popen(  # noqa: S603 - ours
            command,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=self.errors,
            start_new_session=True,
        )

    @property
    def ended(self) -> bool:
        """Whether the process is over."""
        return self.process.poll() is not None

    def said(self) -> str:
        """What it wrote to standard error."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def last_words(self) -> str:
        """How it ended, and the last line of what it said."""
        lines = [line for line in self.said().splitlines() if line.strip()] or ["nothing"]
        return f"its process ended with {self.process.returncode}, and said last: {lines[-1][:200]}"

    def tell(self, order: str) -> None:
        """Give it an order; the end of its input is the order to end."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{order}\n".encode())
            self.process.stdin.flush()

    async def end(self, seconds: float) -> int:
        """Let it end in its own time; returns its exit code."""
        assert self.process.stdin
        self.process.stdin.close()
        return await self.over(seconds)

    async def over(self, seconds: float) -> int:
        """Wait for its end; returns its exit code."""
        try:
            await until(lambda: self.ended, "the end of the process", seconds)
        except TimeoutError:
            raise AssertionError(
                f"the process has not ended within {seconds} s: {self.said()[-500:]}"
            ) from None
        return int(self.process.returncode)

    def clear(self) -> None:
        """Leave nothing of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.errors.close()


class Fleet:
    """An application, and the processes that serve it; one for each kind of pool."""

    def __init__(self, temporal: TemporalServer, redis: RedisServer, run: Run, lease: float) -> None:
        self.application = f"fleet-{uuid4()}"
        self.settings = quick_settings(
            application_name=self.application, redis_url=redis.url, lease=timedelta(seconds=lease)
        )
        self.run, self.redis = run, redis
        self._temporal, self._lease = temporal, lease
        self._members: dict[str, Member] = {}

    def member(
        self, kind: str, *, stdout: int | IO[Any] | None = subprocess.DEVNULL, **variables: str
    ) -> Member:
        """The process for this kind of activity; a new one if there is none that lives."""
        pool = "process" if kind == "process" else "thread"
        member = self._members.get(pool)
        if member is not None and member.ended:
            self.run.killed(member.process.pid)
            member.clear()
        if member is None or member.ended:
            script = str(Path(__file__).with_name("exit_worker.py"))
            command = [sys.executable, script, self._temporal.address, self.queue(kind), pool]
            environment = {
                "APPLICATION_NAME": self.application,
                "REDIS_URL": self.redis.url,
                "LOCK_RETRY_INTERVAL": "0.1",
                "LOCK_LEASE_SECONDS": str(self._lease),
                **self.run.environment,
                **variables,
            }
            member = self._members[pool] = Member(command, environment, stdout)
        return member

    def queue(self, kind: str) -> str:
        """The task queue of this kind's process."""
        return f"{self.application}-{'process' if kind == 'process' else 'thread'}"

    async def call(self, kind: str, name: str, argument: Any, **how: Any) -> str:
        """Run an activity, and tell what became of it, also when its worker ends under it."""
        member, client = self.member(kind), await Client.connect(self._temporal.address)
        call = Call(name, [argument], **{"attempts": 1, "schedule_to_close": 20.0} | how)
        handle = await client.start_workflow(
            CallActivity.run, call, id=f"wf-{uuid4()}", task_queue=self.queue(kind)
        )
        result = asyncio.ensure_future(handle.result())
        await until(lambda: result.done() or member.ended, f"the end of {name}", STARTS_WITHIN + 20)
        if not result.done():
            result.cancel()
            await handle.terminate()
            return f"it never ended: {member.last_words()}"
        try:
            return str(result.result())
        except WorkflowFailureError as error:
            return _cause(error)

    @contextlib.asynccontextmanager
    async def somebody_else(
        self, name: str = "lock", key: str | None = None, seconds: float = 0.0
    ) -> AsyncIterator[float]:
        """Holds a lock while entered, for which it waits for so long; yields when it got it."""
        async with self.store() as store:
            owner = uuid4().hex
            claim = Claim(lock=LockId(self.application, name, key), owner=owner, waiter=owner, limit=1)
            queueing = Queueing(presence=timedelta(seconds=5), keep=timedelta(minutes=5))

            async def granted() -> bool:
                answer = await store.acquire(claim, lease=timedelta(seconds=60), queueing=queueing)
                return isinstance(answer, Granted)

            await until(granted, f"lock {name} for somebody else", seconds)
            yield clock()
            await store.release(claim)

    async def waiting(self, name: str) -> int:
        """How many wait for a lock."""
        async with self.store() as store:
            return (await store.inspect(LockId(self.application, name, None))).waiting

    def forget(self) -> None:
        """Delete what the server knows of this application's locks."""
        for key in command(self.redis, "KEYS", f"*{{{self.application}:*"):
            command(self.redis, "DEL", key)

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncIterator[RedisLockStore]:
        """To look at the locks."""
        store = RedisLockStore(self.settings)
        try:
            yield store
        finally:
            await store.close()

    async def until_free(self, name: str, key: str | None, seconds: float) -> None:
        """Wait until nobody holds or waits."""
        async with self.store() as store:

            async def free() -> bool:
                state = await store.inspect(LockId(self.application, name, key))
                return not state.holders and not state.waiting

            await until(free, f"lock {name} that nobody has or wants", seconds)

    def clear(self) -> None:
        """Leave nothing."""
        for member in self._members.values():
            member.clear()


@contextlib.contextmanager
def watched(
    temporal: TemporalServer, redis: RedisServer, directory: Path, row: str, lease: float
) -> Iterator[Fleet]:
    """A fleet whose history is judged at the end; what its processes held may be left to its lease."""
    with (
        history.recording(directory / "history", redis) as run,
        fleet(temporal, redis, run, lease) as workers,
    ):
        yield workers
        report = run.check(Expectations(poll=0.12, slack=SLACK, stop_margin=told_within(), tidy=False))
    counts = report.counts
    measured(
        f"{row}: grants {counts['grants']}, most at once {counts['most at once']} of {counts['limit']}, "
        f"leases lost {counts['lost']}, violations {len(report.violations)}"
    )


@contextlib.contextmanager
def fleet(temporal: TemporalServer, redis: RedisServer, run: Run, lease: float) -> Iterator[Fleet]:
    """An application whose processes are gone at the end."""
    found = Fleet(temporal, redis, run, lease)
    try:
        yield found
    finally:
        found.clear()


def _cause(error: WorkflowFailureError) -> str:
    """The type of the failure in the workflow's history, as the activity's code knows it."""
    failure = error.cause.__cause__
    return f"{type(failure).__name__} {getattr(failure, 'type', '')}".strip()
