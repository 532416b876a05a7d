"""Hooks in the package's classes that write the client log and ask for the audit; for tests only."""

# ruff: noqa: SLF001 - as exact as the package itself knows it

import contextlib
import contextvars
import functools
import inspect
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from lock_interceptor.guard import Guard
from lock_interceptor.keeper import Hold, LeaseKeeper
from lock_interceptor.lease import Lease
from lock_interceptor.redis_store import RedisLockStore, scripts
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.store import Claim, Granted, Queueing, Waiting
from lock_interceptor.testing import InMemoryLockStore

from .audit import auditing
from .client_log import ClientLog

VARIABLE = "LOCK_HISTORY"
"""Names the directory of a history to the processes that a test starts."""
_AUDITED = ("acquire", "renew", "release", "park")
_asking: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("history.asking")


def install() -> None:
    """Take part in the history that the environment names, if it names one; for worker processes."""
    if directory := os.environ.get(VARIABLE):
        _patch_all(ClientLog(Path(directory)))  # for as long as the process lives


@contextlib.contextmanager
def installed(log: ClientLog) -> Iterator[ClientLog]:
    """Record what this process does with locks."""
    with _patch_all(log):
        yield log


def _patch_all(log: ClientLog) -> contextlib.ExitStack:
    undo = contextlib.ExitStack()

    def patch(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        before = getattr(owner, name)
        setattr(owner, name, make(before))
        undo.callback(setattr, owner, name, before)

    patch(scripts, "load", auditing)
    patch(RedisLockStore, "_run", _with_call)
    for store in (RedisLockStore, InMemoryLockStore):
        for operation in _AUDITED:
            patch(store, operation, functools.partial(_noting, log, operation))
    leases = _Leases(log)
    patch(LeaseKeeper, "keep", leases.noting_holds)
    patch(Lease, "extend", leases.noting_extensions)
    patch(Lease, "lose", leases.noting_losses)
    patch(Guard, "run", leases.noting_bodies)
    return undo


def _with_call(run: Any) -> Any:
    """Hand the recorder in the script what was asked, behind the arguments."""

    @functools.wraps(run)
    async def with_call(self: Any, name: str, *args: Any, **options: Any) -> Any:
        more = [json.dumps(_asking.get())] if name in _AUDITED else []
        return await run(self, name, *args, *more, **options)

    return with_call


def _noting(log: ClientLog, operation: str, call: Any) -> Any:
    @functools.wraps(call)
    async def noting(self: Any, claim: Claim, **options: Any) -> Any:
        number = log.new_call()
        key = lock_key(self._settings.key_prefix if isinstance(self, RedisLockStore) else "lock", claim.lock)
        asked = {"op": operation, "call": number, "owner": claim.owner, "waiter": claim.waiter}
        asked |= {"limit": claim.limit, "priority": min(max(claim.priority, 1), 9), **_durations(options)}
        lock = claim.lock
        log.note("call", lock=key, name=[lock.application, lock.name, lock.key], **asked)
        token = _asking.set(asked)
        answer: dict[str, Any] = {"error": "cancelled"}
        try:
            result = await call(self, claim, **options)
            answer = _told(result)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
            raise
        finally:
            _asking.reset(token)
            log.note("answer", lock=key, owner=claim.owner, call=number, op=operation, **answer)
        return result

    return noting


def _durations(options: dict[str, Any]) -> dict[str, int]:
    queueing: Queueing | None = options.get("queueing")
    if queueing:
        options = {**options, "presence": queueing.presence, "keep": queueing.keep}
    names = [name for name in ("lease", "presence", "keep") if name in options]
    # no presence: it stands in line parked
    found = {
        name: max(round(options[name].total_seconds() * 1000), 1) if options[name] else 0 for name in names
    }
    return {**found, "ticket": options["ticket"]} if "ticket" in options else found


def _told(result: Any) -> dict[str, Any]:
    if isinstance(result, Granted):
        return {"token": result.token, "slot": result.slot}
    if isinstance(result, Waiting):
        return {"place": result.place}
    return {"yes": result is not False}


class _Leases:
    """Follows what the worker makes of its grants."""

    def __init__(self, log: ClientLog) -> None:
        self._log = log
        self._owners: WeakKeyDictionary[Lease, str] = WeakKeyDictionary()

    def _note(self, what: str, lease: Lease, **more: Any) -> None:
        if owner := self._owners.get(lease):
            self._log.note(what, owner=owner, **more)

    def noting_holds(self, keep: Any) -> Any:
        """Note that a grant is believed, and that its loss is told."""

        @functools.wraps(keep)
        def noting(keeper: LeaseKeeper, hold: Hold) -> None:
            lease, tell = hold.lease, hold.on_lost
            self._owners[lease] = hold.claim.owner

            def told() -> None:
                self._note("told", lease)
                tell()

            hold.on_lost = told
            self._note(
                "hold",
                lease,
                token=lease.token,
                slot=lease.slot,
                until=lease._expires,
                deadline=lease._deadline,
            )
            keep(keeper, hold)

        return noting

    def noting_extensions(self, extend: Any) -> Any:
        """Note that a lease ends later."""

        @functools.wraps(extend)
        def noting(lease: Lease, *args: Any, **more: Any) -> bool:
            done: bool = extend(lease, *args, **more)
            if done:
                self._note("extend", lease, until=lease._expires)
            return done

        return noting

    def noting_losses(self, lose: Any) -> Any:
        """Note that a lease is given up."""

        @functools.wraps(lose)
        def noting(lease: Lease, reason: str) -> None:
            if lease._lost_because is None:
                self._note("lose", lease, reason=reason)
            lose(lease, reason)

        return noting

    def noting_bodies(self, run: Any) -> Any:
        """Note when a body runs, and under which leases."""
        signature = inspect.signature(run)

        @functools.wraps(run)
        async def noting(*args: Any, **options: Any) -> Any:
            bound = signature.bind(*args, **options)
            body = bound.arguments["body"]

            async def noted(leases: tuple[Lease, ...], loss: Any) -> Any:
                for lease in leases:
                    self._note("body", lease)
                outcome = "raised"
                try:
                    result = await body(leases, loss)
                    outcome = "returned"
                finally:
                    for lease in leases:
                        self._note("body_end", lease, outcome=outcome)
                return result

            bound.arguments["body"] = noted
            return await run(*bound.args, **bound.kwargs)

        return noting
