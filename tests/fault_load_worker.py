"""One process of `fault_load`: clients that take locks through the package's guard, without Temporal.

Its locks are real and so is everything below the interceptor; activities cost too much for hundreds of
grants in seconds. It works until its orders end, or until it is killed.
"""

import asyncio
import functools
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import uuid4

import history
import structlog
from fault_load_plan import LoadLock, Plan
from fault_load_troubles import TROUBLES
from history.hooks import VARIABLE
from patience import Patient
from redis_tools import until_answered

from lock_interceptor import LockError, LockLost, LockNotAcquired, LockSettings, LockStoreUnavailable
from lock_interceptor.guard import Guard
from lock_interceptor.keeper import LeaseKeeper
from lock_interceptor.lease import Lease
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.room import WaitingRoom
from lock_interceptor.store import Claim, LockId, Party
from lock_interceptor.terms import Want, new_owner
from lock_interceptor.watchdog import Watchdog

STEP = 0.01
"""Seconds between two looks of a threaded body at its lease."""
DRAIN = 15.0
"""Seconds within which everybody ends what it is about, when the orders have ended."""
PASSING = (LockNotAcquired, LockStoreUnavailable, LockLost)
"""After these there is another attempt of the same activity."""


def work(plan: Plan, environment: dict[str, str], orders: Connection) -> None:
    """Be the process; what it logs goes into a file next to the history."""
    os.environ.update(environment)
    directory = Path(environment[VARIABLE])
    output = os.open(directory / f"worker-{os.getpid()}.log", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(output, stream)
    structlog.configure(processors=[structlog.processors.KeyValueRenderer()])
    plan.be_different()
    history.install()
    asyncio.run(_Worker(plan, directory).run(orders))


@dataclass
class _Worker:
    plan: Plan
    directory: Path
    settings: LockSettings = field(default_factory=LockSettings)
    stopping: bool = False
    hang: bool = False
    """Bodies go on until this is over."""

    def __post_init__(self) -> None:
        self.store = RedisLockStore(self.settings)
        self.keeper = LeaseKeeper(self.store)
        self.guard = Guard(
            self.store,
            self.keeper,
            WaitingRoom(100),
            retry_interval=self.settings.retry_interval,
            max_wait=timedelta(seconds=self.plan.max_wait),
        )
        self.threads = ThreadPoolExecutor(self.plan.clients)
        self.resource = history.FencedResource()
        self.notes = os.open(self.directory / "progress", os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    async def run(self, orders: Connection) -> None:
        """Work until told otherwise."""
        locks = self.plan.locks
        clients = [
            asyncio.create_task(self.client(number, locks[number % len(locks)]))
            for number in range(self.plan.clients)
        ]
        obeying = asyncio.create_task(self.obey(orders))
        await asyncio.wait([*clients, obeying], return_when=asyncio.FIRST_COMPLETED)
        self.stopping = True
        await asyncio.wait(clients, timeout=DRAIN)
        late = [client for client in clients if client.cancel()]
        for outcome in await asyncio.gather(*clients, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        assert not late, f"{len(late)} clients did not come to an end"
        await self.keeper.close()
        await self.store.close()

    async def obey(self, orders: Connection) -> None:
        """Do what the test says, until it says nothing more."""
        while True:
            try:
                order, value = await asyncio.to_thread(orders.recv)
            except EOFError:
                return
            if order == "hang":
                self.hang = value
            elif order == "block":
                time.sleep(value)  # noqa: ASYNC251 - that is what this is about
            elif order == "die in release":
                self.die_in_release(value)
            else:
                TROUBLES[order](self.store, value)
            self.note("-", order.replace(" ", "-"))

    def note(self, lock: str, what: str) -> None:
        """Leave a line for the test: process, task, lock, what."""
        task = asyncio.current_task()
        name = task.get_name() if task else "-"
        os.write(self.notes, f"{os.getpid()} {name} {lock} {what}\n".encode())

    async def client(self, number: int, lock: LoadLock) -> None:
        """One activity after the other; each has as many attempts as it needs."""
        task = asyncio.current_task()
        assert task
        task.set_name(str(number))
        threaded = self.plan.careless or number // len(self.plan.locks) % 2 == 1
        while not self.stopping:
            waiter, done, attempt = uuid4().hex, False, 0
            while not done:
                attempt += 1
                claim = Claim(
                    lock=LockId(self.settings.application_name, lock.name),
                    owner=new_owner(waiter),
                    waiter=waiter,
                    limit=lock.limit,
                    party=Party(attempt=attempt),
                )
                done = await self.attempt(lock, claim, threaded=threaded)
                if not done and self.stopping:  # another process would go on with this place, were it one
                    await until_answered(functools.partial(self.store.release, claim))
                    done = True
                elif not done:
                    await asyncio.sleep(random.uniform(0.02, 0.2))  # noqa: S311 - just load

    async def attempt(self, lock: LoadLock, claim: Claim, *, threaded: bool) -> bool:
        """One attempt; whether it was the last one."""
        attempt = asyncio.create_task(
            self.guard.run(
                [Want(claim=claim, lease=self.settings.lease)],
                Patient(),
                lambda leases, watchdog: self.body(lock, leases[0], watchdog, threaded=threaded),
            ),
            name=_name(),
        )
        # now and then one is cancelled, while it waits or while it works; a thread cannot be stopped
        if not threaded and not self.stopping and random.random() < 0.05:  # noqa: S311
            await asyncio.wait({attempt}, timeout=random.uniform(0, 0.2))  # noqa: S311
            if not self.hang:
                attempt.cancel()
        try:
            await attempt
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                attempt.cancel()
                raise
            self.note(lock.name, "cancelled")
            return True
        except LockError as error:
            self.note(lock.name, type(error).__name__)
            return not isinstance(error, PASSING)
        return True

    async def body(self, lock: LoadLock, lease: Lease, watchdog: Watchdog, *, threaded: bool) -> None:
        """Write, work and write under a lease, as activities of both kinds do."""
        await self.write(lock, lease)
        self.note(lock.name, "began")
        end = time.monotonic() + random.uniform(*lock.hold)  # noqa: S311 - just load
        try:
            if threaded:
                await asyncio.get_running_loop().run_in_executor(self.threads, self.in_thread, lease, end)
            else:
                await self.stoppable(lease, watchdog, end)
        finally:
            self.note(lock.name, "ended")
        await self.write(lock, lease)

    async def stoppable(self, lease: Lease, watchdog: Watchdog, end: float) -> None:
        """Work in a coroutine, cancelled when the lease is lost."""
        work = asyncio.ensure_future(self.in_coroutine(end))
        try:
            with watchdog.interrupting(work.cancel):
                await work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and not task.cancelling():
                lease.raise_if_lost()
            raise

    async def in_coroutine(self, end: float) -> None:
        while self.goes_on(end):  # noqa: ASYNC110 - until the test says so, which may be at any moment
            await asyncio.sleep(STEP)

    def in_thread(self, lease: Lease, end: float) -> None:
        """Work in a thread, which nobody can cancel: it has to look."""
        while self.goes_on(end):
            if not self.plan.careless:
                lease.raise_if_lost()
            time.sleep(STEP)

    def goes_on(self, end: float) -> bool:
        """Whether a body has not done yet what it has to do until then."""
        return not self.stopping and (self.hang or time.monotonic() < end)

    async def write(self, lock: LoadLock, lease: Lease) -> None:
        # in a thread, since there may have to be waited for another process that was stopped meanwhile
        write = functools.partial(self.resource.write, lease.token, slot=lease.slot, name=lock.name)
        await asyncio.get_running_loop().run_in_executor(self.threads, write)

    def die_in_release(self, moment: str) -> None:
        """End by SIGKILL at the next release: before it is sent, while it is on its way, or when done."""
        release = self.store.release

        async def dying(claim: Claim) -> Any:
            sending = asyncio.ensure_future(release(claim))
            if moment == "sent":
                await asyncio.wait({sending}, timeout=0.001)
            elif moment == "done":
                await sending
            os.kill(os.getpid(), signal.SIGKILL)

        self.store.release = dying  # type: ignore[method-assign]


def _name() -> str:
    task = asyncio.current_task()
    return task.get_name() if task else "-"
