"""Where the faults around the lock happen: workers without Temporal on a real server, and their judge."""

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import history
from figures import measured
from history import Expectations, Run
from history.beliefs import believed
from history.expectations import BETWEEN
from history.findings import Findings
from process_bodies import ONE, Seen, Work, seen
from servers import command
from stage import until
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, ExecuteActivityInput

from lock_interceptor import RedisLockStore
from lock_interceptor.dev import RedisServer
from lock_interceptor.store import Claim, Granted, LockId, LockStore
from lock_interceptor.testing import LockedActivityEnvironment, quick_settings

Result = TypeVar("Result")

LEASE = 1.0
SLACK = 3.0
"""Seconds that a busy machine may add to whatever takes time."""
TOLD_WITHIN = 0.6
"""Seconds after the end of its lease within which a body has to be told; its own steps are in it."""
CLOSES_WITHIN = 20.0
"""Seconds: what does not come back by then hangs."""
MANY = 1_000_000


def told_within() -> float:
    """The same, with more where processes have to wait for a core just now."""
    return TOLD_WITHIN * max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))


class Worker(LockedActivityEnvironment):
    """A worker without Temporal that has a process pool, too."""

    def __init__(self, scene: "Scene", store: LockStore, settings: Any) -> None:
        super().__init__(store, settings)
        self.store = store
        self._scene = scene
        self._names = itertools.count(1)

    async def do(self, kind: str, seconds: float = 0.05, who: str = "", **how: Any) -> str:
        """Run one attempt, and tell what came of it: ``done``, or how it failed."""
        work = Work(str(self._scene.directory), who or kind, seconds, how.get("locks", ("lock",)))
        body = how.get("bodies", ONE)[kind]
        run = self._run_in_process if kind == "process" else self.run
        try:
            return str(await run(body, work))
        except ApplicationError as error:
            return error.type or str(error)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    async def _run_in_process(self, fn: Callable[..., Any], *args: Any) -> Any:
        environment = ActivityEnvironment()
        number = f"process-{next(self._names)}"
        environment.info = replace(self.info, activity_type=fn.__name__, activity_id=number)
        chain = self.interceptor.intercept_activity(_InPool())
        chain.init(_Outside(environment))
        call = ExecuteActivityInput(fn, args, self._scene.pool, headers={})
        return await environment.run(chain.execute_activity, call)


class _InPool(ActivityInboundInterceptor):
    """The inner end of the chain: runs the function in the pool."""

    def __init__(self) -> None:
        pass

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        pass

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        return await asyncio.get_running_loop().run_in_executor(input.executor, input.fn, *input.args)


class _Outside(ActivityOutboundInterceptor):
    """The outer end of the chain."""

    def __init__(self, environment: ActivityEnvironment) -> None:
        self._environment = environment

    def info(self) -> activity.Info:
        return self._environment.info

    def heartbeat(self, *details: Any) -> None:
        pass


@dataclass
class Scene:
    """One application on a real server, whose history is recorded."""

    server: RedisServer
    directory: Path
    pool: Executor
    run: Run
    application: str = field(default_factory=lambda: f"around-{uuid4()}")

    @contextlib.asynccontextmanager
    async def worker(
        self, wrap: Callable[[LockStore], LockStore] = lambda store: store, **changes: Any
    ) -> AsyncIterator[Worker]:
        """A worker of its own; `wrap` may put something between it and the store."""
        settings = quick_settings(
            **{"application_name": self.application, "redis_url": self.server.url} | changes
        )
        worker = Worker(self, wrap(RedisLockStore(settings)), settings)
        try:
            yield worker
        except BaseException:
            with contextlib.suppress(BaseException):  # what failed first says more
                await asyncio.wait_for(worker.close(), CLOSES_WITHIN)
            await worker.store.close()
            raise
        await in_time(worker.close(), "a worker closes", CLOSES_WITHIN)

    @contextlib.asynccontextmanager
    async def somebody_else(self) -> AsyncIterator[None]:
        """Holds the lock while entered."""
        store = RedisLockStore(quick_settings(redis_url=self.server.url))
        owner = uuid4().hex
        claim = Claim(lock=LockId(self.application, "lock", None), owner=owner, waiter=owner, limit=1)
        try:
            assert isinstance(await store.acquire(claim, lease=timedelta(seconds=30)), Granted)
            yield
            await store.release(claim)
        finally:
            await store.close()

    def said(self, who: str) -> list[Seen]:
        """What the bodies of this name have said."""
        return [each for each in seen(self.directory) if each.who == who]

    async def saw(self, who: str, what: str) -> None:
        """Wait until a body has said it."""
        await until(
            lambda: any(each.what == what for each in self.said(who)), f"body {who!r} says {what!r}", 20
        )

    async def until_somebody_waits(self) -> None:
        """Wait until somebody stands in line for the lock."""
        await until(lambda: any(member[0] == "q" for member in self.members()), "somebody in line")

    def forget(self) -> None:
        """Delete what the server knows of this application's locks."""
        if keys := self._keys():
            command(self.server, "DEL", *keys)

    def members(self) -> list[str]:
        """What stands in the locks besides bookkeeping: holders, and who is in line."""
        everything = [member for key in self._keys() for member in command(self.server, "ZRANGE", key, 0, -1)]
        return [member for member in everything if member[0] not in "#@"]

    async def until_free(self, seconds: float) -> None:
        """Wait until nobody holds the lock; what has run out does not count."""
        store = RedisLockStore(quick_settings(redis_url=self.server.url))
        try:

            async def free() -> bool:
                return not (await store.inspect(LockId(self.application, "lock", None))).holders

            await until(free, "a lock that nobody holds", seconds)
        finally:
            await store.close()

    def _keys(self) -> list[str]:
        found: list[str] = command(self.server, "KEYS", f"*{{{self.application}:*")
        return found


async def either(body: "asyncio.Future[Any]", comes: Coroutine[Any, Any, object]) -> None:
    """Wait until something comes, or an attempt ends without it."""
    coming = asyncio.ensure_future(comes)
    await asyncio.wait({coming, body}, return_when=asyncio.FIRST_COMPLETED)
    if not coming.done():
        coming.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await coming


async def in_time(work: Awaitable[Result], what: str, seconds: float = CLOSES_WITHIN) -> Result:
    """The result, within a bound that only what hangs exceeds."""
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}") from None


@contextlib.contextmanager
def scene(server: RedisServer, directory: Path, pool: Executor, row: str, **expected: Any) -> Iterator[Scene]:
    """A scene; at its end the history is judged, and a line of the matrix is shown."""
    with history.recording(directory / "history", server) as run:
        yield Scene(server, directory, pool, run)
        judge(run, row, **expected)


def judge(run: Run, row: str, **expected: Any) -> None:
    """Check the history, and that no body went on after its lease for longer than it takes to be told.

    The second comes first: it says more plainly what went wrong.
    """
    assert_told(run, row)
    # a server that was told to forget grants anew what is still believed in, for as long as that is not known
    within = {"poll": 0.12, "slack": SLACK, "stop_margin": told_within(), "at_most": {BETWEEN: MANY}}
    report = run.check(replace(Expectations(), **{**within, **expected}))
    counts = report.counts
    measured(
        f"{row}: grants {counts['grants']}, bodies {counts['bodies']}, "
        f"most at once {counts['most at once']} of {counts['limit']}, leases lost {counts['lost']}, "
        f"violations {len(report.violations)}"
    )


def assert_told(run: Run, row: str) -> None:
    """No body has worked on after its lease for longer than it takes to be told."""
    late = overruns(run)
    assert not late, f"{row}: bodies that were not told in time: {'; '.join(late)}"


def overruns(run: Run) -> list[str]:
    """Each body that worked on after its lease had ended, of which it has to be told at once."""
    found, bound = [], told_within()
    for owner in believed(run.notes(), {}, Findings()).values():
        belief = owner.belief
        if belief is None or not owner.bodies or belief.why not in ("lost", "run out"):
            continue
        over = owner.bodies[-1][1] - belief.end
        if over > bound:
            lease = belief.end - belief.start
            text = f"held for {lease:.2f} s, then {belief.why}, and its body worked on for {over:.2f} s"
            found.append(f"{owner.lock} was {text}")
    return found
