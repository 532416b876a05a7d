"""`LockInterceptor`: what a ``Worker`` is given to hold locks around its tagged activities."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NoReturn

import temporalio.client
from temporalio import activity
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from lock_interceptor import telemetry
from lock_interceptor.errors import LockConfigurationError, LockError, LockStoreUnavailable
from lock_interceptor.guard import Guard
from lock_interceptor.keeper import LeaseKeeper
from lock_interceptor.lease import Lease
from lock_interceptor.loop_thread import refuse_green_threads
from lock_interceptor.marker import read_specs
from lock_interceptor.places import Places
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.room import MAX_WAITERS, WaitingRoom
from lock_interceptor.settings import LockSettings
from lock_interceptor.spec import LockSpec
from lock_interceptor.store import LockStore
from lock_interceptor.waiting import AT_ONCE
from lock_interceptor.watchdog import Watchdog
from lock_interceptor.worker.attempt import ActivityAttempt
from lock_interceptor.worker.bodies import (
    LossRaisingOutbound,
    kind_of,
    run_body,
)
from lock_interceptor.worker.body_places import BodyPlaces
from lock_interceptor.worker.failures import to_application_error
from lock_interceptor.worker.meters import Meters
from lock_interceptor.worker.unlocked import showing_leases
from lock_interceptor.worker.wanted import wanted
from lock_interceptor.worker.worker_size import RoomOfWorkers
from lock_interceptor.worker.workflow_check import (
    RefusingWorkflowInboundInterceptor,
    check_workflows,
    configuration_under_construction,
)

_guarded: ContextVar[bytes] = ContextVar("lock_interceptor.guarded", default=b"")
"""Task token of the attempt that a `LockInterceptor` further out takes care of already.

Not just a flag: a worker that is started inside an activity inherits its context.
"""


class LockInterceptor(temporalio.client.Interceptor, Interceptor):
    """Holds the locks that `needs_lock` asks for while an activity runs.

    ``Worker(client, ..., interceptors=[LockInterceptor()])``, or given to the client, for all its workers.
    Those share one bound on waiters: ``LOCK_MAX_WAITERS``, or else 25 and no more than half of
    ``max_concurrent_activities`` of the smallest of them; a tuner of your own has no such number. Connections
    open with the first locked activity; `close` closes them, which `LockPlugin` does with the worker.

    A lock is asked for only while the executor has a thread or process free for the activity's body, if it
    is one that says how many it has, such as those of ``concurrent.futures``.

    A waiting activity hears of its cancellation when the SDK passes a heartbeat on: after 80 % of the
    heartbeat timeout, at most the worker's ``max_heartbeat_throttle_interval``, which `LockPlugin` lowers.
    """

    def __init__(self, settings: LockSettings | None = None, *, store: LockStore | None = None) -> None:
        """Create an interceptor; nothing is connected before the first locked activity.

        Args:
            settings: by default read from the environment.
            store: where the locks are kept, by default a `RedisLockStore` with these settings.

        Raises:
            LockConfigurationError: the environment holds invalid settings, or a library such as gevent has
                replaced the threads of this process, without which no lock can be renewed.
        """
        self.settings = settings or LockSettings()
        if not self.settings.disabled:
            refuse_green_threads()
        self.store: LockStore = RedisLockStore(self.settings) if store is None else store
        self._keeper = LeaseKeeper(self.store)
        self._meters = Meters()
        self._refusals: list[LockConfigurationError] = []
        self._of_workers: RoomOfWorkers | None
        room = WaitingRoom(self.settings.max_waiters or MAX_WAITERS)
        self.sit_in(room)
        if self.settings.max_waiters is None:
            self._of_workers = RoomOfWorkers(room)
        self._announce()

    def for_worker(
        self, config: Mapping[str, Any], room: WaitingRoom, places: Places | None
    ) -> LockInterceptor:
        """One more interceptor that shares everything with this one, but for a worker's own waiting room."""
        self._meters.learn(config)
        other = copy.copy(self)
        other.sit_in(room, places)
        LockInterceptor._announce(other)
        return other

    def sit_in(self, room: WaitingRoom, places: Places | None = None) -> None:
        """Have a waiting room whose size is settled, and places for the bodies of the worker."""
        self._room = room
        self._of_workers = None
        self._places = BodyPlaces(places)
        self._guard = Guard(
            self.store,
            self._keeper,
            room,
            retry_interval=self.settings.retry_interval,
            max_wait=self.settings.max_wait,
        )

    def _announce(self) -> None:
        """Say it loudly if there are no locks: an interceptor is made for a worker, so once for each."""
        if self.settings.disabled:
            telemetry.disabled()

    async def check(self) -> None:
        """Ask the store whether it would serve us, so that a mistake is found before the first activity.

        Raises:
            LockConfigurationError: it refuses: wrong password, missing right, TLS mismatch.
            LockStoreUnavailable: it does not answer now; locked activities will wait for it.
        """
        if not self.settings.disabled:
            await self.store.check()

    @contextlib.contextmanager
    def refusing(self, reason: LockConfigurationError) -> Iterator[None]:
        """While entered, no locked activity begins: its worker is about to stop, another one will do it."""
        self._refusals.append(reason)
        try:
            yield
        finally:
            self._refusals.remove(reason)

    async def close(self) -> None:
        """Give back what is left and close the connections of this loop. It can be used again afterwards."""
        await self._keeper.close()
        await self.store.close()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See base class."""
        return _LockActivityInboundInterceptor(next, self)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002 - the SDK's signature
    ) -> type[WorkflowInboundInterceptor] | None:
        """Refuse tagged workflows: the constructor of the Worker or Replayer calls this.

        Raises:
            LockConfigurationError: a workflow is tagged with `needs_lock`.
        """
        config = configuration_under_construction()
        if config is None:
            return RefusingWorkflowInboundInterceptor
        check_workflows(config.get("workflows", ()))
        self._meters.learn(config)
        if self._of_workers is not None:
            self._of_workers.learn(config)
        return None

    async def run(
        self,
        specs: tuple[LockSpec, ...],
        next: ActivityInboundInterceptor,
        input: ExecuteActivityInput,
        outbound: LossRaisingOutbound,
    ) -> Any:
        """Run a tagged activity under its locks.

        Raises:
            LockError: as `Guard.run`, or the activity cannot be locked as it was called.
        """
        if self._refusals:
            raise LockStoreUnavailable(str(self._refusals[0]), AT_ONCE)
        if self._of_workers is not None:
            self._of_workers.look(self, activity.info())
        attempt = ActivityAttempt(outbound, interrupted=kind_of(input) == "async")
        wants = wanted(specs, attempt, tuple(input.args), self.settings, self._meters)

        async def body(leases: tuple[Lease, ...], watchdog: Watchdog) -> Any:
            outbound.leases = leases if kind_of(input) != "process" else ()
            return await run_body(next, input, leases, watchdog, attempt)

        place = self._places.of_locked(input)
        try:
            return await self._guard.run(wants, attempt, body, place)
        finally:
            place.give_back()

    async def run_unlocked(
        self, next: ActivityInboundInterceptor, input: ExecuteActivityInput, outbound: LossRaisingOutbound
    ) -> Any:
        """Run an activity without locks, in a place that waiters do not take from it."""
        async with self._places.for_unlocked(input, outbound):
            return await next.execute_activity(input)


class _LockActivityInboundInterceptor(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, interceptor: LockInterceptor) -> None:
        super().__init__(next)
        self._interceptor = interceptor
        self._outbound: LossRaisingOutbound | None = None

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._outbound = LossRaisingOutbound(outbound)
        super().init(self._outbound)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        specs, task, interceptor = read_specs(input.fn), activity.info().task_token, self._interceptor
        if _guarded.get() == task or self._outbound is None:
            return await super().execute_activity(input)
        token = _guarded.set(task)
        try:
            if specs and not interceptor.settings.disabled:
                return await interceptor.run(specs, self.next, input, self._outbound)
            with showing_leases(specs, input) if specs else contextlib.nullcontext(input) as shown:
                return await interceptor.run_unlocked(self.next, shown, self._outbound)
        except LockError as error:
            _fail(error)
        finally:
            _guarded.reset(token)


def _fail(error: LockError) -> NoReturn:
    if isinstance(error, LockConfigurationError):
        telemetry.misconfigured(activity.info().activity_type, error)
    raise to_application_error(error) from error.__cause__
