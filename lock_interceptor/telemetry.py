"""What happens to locks, told to logs, traces and metrics: one function for each event.

Nothing in here acts on a lock, and nothing raises. A caller acts first and reports then. Names of events,
their levels and keys are API (``docs/reference.md``).
"""

from __future__ import annotations

from typing import Any

import structlog

from lock_interceptor import metrics, tracing
from lock_interceptor.harmless import Harmless
from lock_interceptor.lease import Lease, clock
from lock_interceptor.store import Claim, Waiting


class _Log:
    """The logger of the package; its methods never raise."""

    def __init__(self) -> None:
        self._log = structlog.get_logger("lock_interceptor")
        self._harmless = Harmless("logging")

    def debug(self, event: str, **facts: Any) -> None:
        with self._harmless:
            self._log.debug(event, **facts)

    def info(self, event: str, **facts: Any) -> None:
        with self._harmless:
            self._log.info(event, **facts)

    def warning(self, event: str, **facts: Any) -> None:
        with self._harmless:
            self._log.warning(event, **facts)

    def error(self, event: str, **facts: Any) -> None:
        with self._harmless:
            self._log.error(event, **facts)


log = _Log()


# -- waiting


def waiting(claim: Claim, state: Waiting) -> None:
    """The lock is not free, and the attempt waits for it in this worker."""
    place, held = state.ahead + 1, state.held
    claim.metrics.change(metrics.WAITING, 1)
    log.info("lock.waiting", place=place, held=held, **_facts(claim))
    tracing.event("lock.waiting", lock=str(claim.lock), place=place, held=held)


def waiting_ended(claim: Claim) -> None:
    """It waits in this worker no more, whatever came of it."""
    claim.metrics.change(metrics.WAITING, -1)


def parked(claim: Claim, state: Waiting, back_in: float) -> None:
    """The attempt ended without the lock, to come back in so many seconds."""
    place = state.ahead + 1
    claim.metrics.count(metrics.PARKED)
    log.info("lock.parked", place=place, back_in=back_in, **_facts(claim))
    tracing.event("lock.parked", lock=str(claim.lock), place=place, back_in=back_in)


def store_unavailable(claim: Claim, error: Exception) -> None:
    """The store did not answer a waiting attempt, for the first time in a row."""
    log.warning("lock.store_unavailable", error=str(error), **_facts(claim))


def store_unavailable_at_start(error: Exception) -> None:
    """The store did not answer a worker that starts."""
    log.warning("lock.store_unavailable", error=str(error))


def request_failed(claim: Claim) -> None:
    """The store did not answer one request."""
    claim.metrics.count(metrics.STORE_ERRORS)


# -- holding


def holding(claim: Claim) -> None:
    """The lock is held from now on."""
    claim.metrics.change(metrics.HOLDING, 1)


def acquired(claim: Claim, lease: Lease, *, waited: float, waited_in_all: float) -> None:
    """The lock was granted, after so many seconds of this attempt, and of all attempts of its wait."""
    claim.metrics.count(metrics.GRANTED)
    claim.metrics.observe(metrics.WAITED, waited_in_all)
    waited = round(waited, 3)
    log.debug("lock.acquired", **_facts(claim, lease), waited=waited)
    tracing.event("lock.acquired", lock=lease.label, token=lease.token, slot=lease.slot, waited=waited)


def held(claim: Claim, since: float) -> None:
    """The lock is held no more; `since` is a reading of the clock."""
    claim.metrics.observe(metrics.HELD, clock() - since)
    claim.metrics.change(metrics.HOLDING, -1)


def released(claim: Claim, lease: Lease) -> None:
    """The lock was given back."""
    log.debug("lock.released", **_facts(claim, lease))
    tracing.event("lock.released", lock=lease.label, token=lease.token)


def release_failed(claim: Claim, lease: Lease) -> None:
    """The lock could not be given back."""
    claim.metrics.count(metrics.RELEASE_FAILED)
    log.warning("lock.release_failed", **_facts(claim, lease), freed_in="at the end of its lease")


def doubtful(claim: Claim, lease: Lease, error: BaseException) -> None:
    """A renewal failed, for the first time in a row."""
    claim.metrics.count(metrics.DOUBTFUL)
    log.warning("lock.doubtful", **_facts(claim, lease), lease_left=lease.remaining, error=str(error))


def recovered(claim: Claim, lease: Lease) -> None:
    """The lease was renewed after it had been doubtful."""
    log.info("lock.recovered", **_facts(claim, lease))


def lost(claim: Claim, lease: Lease, *, why: str) -> None:
    """The lease ended before its lock was given back; `why` is the label of the metric."""
    claim.metrics.count(metrics.LOST, reason=why)
    log.error("lock.lost", **_facts(claim, lease), reason=lease.lost_because)
    tracing.event("lock.lost", lock=lease.label, token=lease.token, reason=why)


def clean_up_ended(error: BaseException) -> None:
    """Something that was to be given back was given up; it ends by itself."""
    log.debug("lock.store_error", error=str(error))


def renewing_failed(error: BaseException) -> None:
    """The thread that renews could not be started, or something in it went wrong."""
    log.error(
        "lock.renewing_failed",
        error=f"{type(error).__name__}: {error}",
        effect="a lease that is not renewed ends, and its activity is told when it does",
        remedy="look at the limits of this process: threads, memory, open files",
    )


# -- the worker


def disabled() -> None:
    """Locking is switched off."""
    log.warning(
        "lock.disabled",
        remedy="unset IS_LOCKING_DISABLED: activities with @needs_lock run WITHOUT their locks",
    )


def misconfigured(activity: str, error: Exception) -> None:
    """An activity failed for good, since something about its lock is wrong."""
    log.error("lock.misconfigured", activity=activity, error=str(error))


def own_tuner(waiters: int) -> None:
    """The user's tuner hands out the worker slots, also those of waiters."""
    log.info(
        "lock.own_tuner",
        waiters=waiters,
        remedy="waiting activities occupy permits of your tuner: allow for them, or leave the tuner out",
    )


# -- Redis


def wakeups_interrupted(error: Exception) -> None:
    """The connection for wake-ups was lost; it is opened anew."""
    log.debug("lock.wakeups_interrupted", error=str(error))


def wakeups_refused(error: Exception) -> None:
    """The server lets us not subscribe."""
    log.warning("lock.wakeups_refused", error=str(error), effect="waiters find out by polling only")


def unexpected_error(where: str, error: Exception, traceback: str) -> None:
    """A library failed in a way that nobody expected. The traceback is text, without local variables."""
    log.warning("lock.unexpected_error", redis=where, error=repr(error), traceback=traceback)


def not_replicated(where: str) -> None:
    """No replica confirmed a grant in time."""
    log.warning(
        "lock.not_replicated",
        redis=where,
        remedy="look at the replicas: a failover now would forget who holds locks",
    )


def info_forbidden(where: str, effect: str) -> None:
    """The server does not tell this user about replication."""
    log.warning(
        "lock.info_forbidden", redis=where, effect=effect, remedy="allow the Redis user the INFO command"
    )


def clock_stepped(where: str, seconds: float, steps: int) -> None:
    """The clock of a server was set forward."""
    log.warning(
        "lock.clock_stepped",
        redis=where,
        seconds=round(seconds, 3),
        steps=steps,
        effect="leases ended earlier than their holders knew",
        remedy="let clocks be slewed and not set, on all servers that a failover may lead to",
    )


def _facts(claim: Claim, lease: Lease | None = None) -> dict[str, Any]:
    """What is said of a claim and, if it was granted, of its lease, as flat keys."""
    if lease is None:
        return {"lock": str(claim.lock), **claim.party.as_dict()}
    return {"lock": lease.label, "token": lease.token, "slot": lease.slot, **claim.party.as_dict()}
