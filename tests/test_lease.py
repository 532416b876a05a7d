"""What a locked body learns of its lock: `Lease` and `current_lease`."""

import asyncio
import contextvars
import math
import multiprocessing
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from lock_interceptor import Lease, LockConfigurationError, LockLost, current_lease
from lock_interceptor import lease as module
from lock_interceptor.lease import clock, held_leases


@dataclass
class Clock:
    """A clock that tests turn."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which leases judge."""
    fake = Clock()
    monkeypatch.setattr(module, "clock", fake)
    return fake


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no such clock")
def test_the_clock_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop or a paused virtual machine finds its leases over when it wakes up, as Redis does."""
    slept = {time.CLOCK_BOOTTIME: 7200.0, time.CLOCK_MONOTONIC: 0.0}
    monkeypatch.setattr(time, "clock_gettime", slept.__getitem__)
    assert clock() == slept[time.CLOCK_BOOTTIME]


def lease(
    name: str = "db", *, key: str | None = None, expires: float = 1030, deadline: float = 1100
) -> Lease:
    return Lease(name, 7, 2, key=key, expires=expires, deadline=deadline)


@contextmanager
def holding(*leases: Lease) -> Iterator[None]:
    """What the guard does around the body."""
    token = held_leases.set(leases)
    try:
        yield
    finally:
        held_leases.reset(token)


def test_what_a_lease_tells(turned: Clock) -> None:
    """Name, token, slot and key are those of the grant, and the times are wall-clock times in UTC."""
    grant = lease(key="eu")
    before = datetime.now(UTC)
    expires_at, deadline = grant.expires_at, grant.deadline
    after = datetime.now(UTC)
    assert (grant.name, grant.key, grant.token, grant.slot) == ("db", "eu", 7, 2)
    assert before <= expires_at - timedelta(seconds=30) <= after
    assert before <= deadline - timedelta(seconds=100) <= after
    assert (grant.remaining, grant.until_deadline) == (30, 100)
    turned.now += 40
    assert (grant.remaining, grant.until_deadline) == (-10, 60)


@pytest.mark.parametrize("far", [math.inf, 1e12])
def test_times_beyond_the_calendar(far: float) -> None:
    """A lease without an end, as when locking is disabled, ends at the end of the calendar."""
    grant = lease(expires=far, deadline=far)
    assert grant.expires_at == grant.deadline == datetime.max.replace(tzinfo=UTC)
    assert not grant.lost


def test_lost_when_the_time_is_over(turned: Clock) -> None:
    """A lease that nobody renews is lost at its end, at that very moment and for good."""
    grant = lease()
    turned.now = 1029.999
    assert not grant.lost
    grant.raise_if_lost()
    turned.now = 1030
    assert grant.lost
    assert not grant.extend(1060)
    assert grant.lost


def test_extended_lease_lives_on(turned: Clock) -> None:
    """A renewal moves the end."""
    grant = lease()
    turned.now = 1020
    assert grant.extend(1050)
    turned.now = 1040
    assert not grant.lost
    assert grant.remaining == 10


def test_lost_early(turned: Clock) -> None:
    """Once lost, as when the store says so, a lease stays lost for the reason given first."""
    grant = lease()
    grant.lose("somebody else holds it")
    grant.lose("another reason")
    assert not grant.extend(2000)
    turned.now -= 500
    with pytest.raises(LockLost, match=r"^lock db was lost while its body ran: somebody else holds it$"):
        grant.raise_if_lost()


def test_lost_at_the_deadline_says_so(turned: Clock) -> None:
    """The last renewal reaches to the deadline, and then the timeout is to blame, not the renewals."""
    grant = lease(key="eu")
    assert grant.extend(1100, final=True)
    turned.now = 1100
    with pytest.raises(LockLost, match=r"lock db\[eu\] was lost .*: schedule_to_close_timeout ran out"):
        grant.raise_if_lost()


def test_lost_for_want_of_a_renewal_says_so(turned: Clock) -> None:
    """A lease whose renewals failed says that this is why."""
    grant = lease()
    turned.now = 1031
    with pytest.raises(LockLost, match="its lease ended before a renewal got through"):
        grant.raise_if_lost()


def test_repr(turned: Clock) -> None:
    """In a log a lease shows what it is and whether it is held."""
    grant = lease(key="eu")
    assert repr(grant) == "<Lease db[eu] token=7 slot=2 held>"
    turned.now = 1100
    assert repr(grant) == "<Lease db[eu] token=7 slot=2 lost>"


def test_only_one_of_many_readings_is_lost(turned: Clock) -> None:
    """Leases are independent: losing one says nothing of another."""
    one, other = lease("one"), lease("other")
    one.lose("gone")
    assert (one.lost, other.lost) == (True, False)
    turned.now = 1030
    assert other.lost


def test_copy_for_another_process(turned: Clock) -> None:
    """In a process pool, which sees no renewals, a lease is lost at the deadline and not before."""
    original = lease(key="eu")
    copy = pickle.loads(pickle.dumps(original.for_other_process()))  # noqa: S301 - our own
    assert (copy.name, copy.key, copy.token, copy.slot) == ("db", "eu", 7, 2)
    turned.now = 1099
    assert original.lost
    assert not copy.lost
    turned.now = 1100
    with pytest.raises(LockLost, match="schedule_to_close_timeout ran out"):
        copy.raise_if_lost()


def _seen_elsewhere(carried: Lease) -> tuple[bool, float, int]:
    return carried.lost, carried.remaining, carried.token


def test_readings_mean_the_same_in_another_process() -> None:
    """The clock is the machine's: a lease that a spawned process receives has the same time left there."""
    now = clock()
    carried = [lease(expires=now, deadline=now + ahead).for_other_process() for ahead in (-1, 3600)]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        (past, _, _), (future, remaining, token) = pool.map(_seen_elsewhere, carried)
    assert (past, future, token) == (True, False, 7)
    assert 3600 - 60 < remaining <= 3600


def test_current_lease() -> None:
    """The one lease that is held needs no name, and answers to its name and to its name with key."""
    plain, keyed = lease("db"), lease("api", key="eu")
    with holding(plain):
        assert current_lease() is current_lease("db") is plain
    with holding(keyed):
        assert current_lease() is current_lease("api") is current_lease("api[eu]") is keyed
    with holding(plain, keyed):
        assert (current_lease("db"), current_lease("api")) == (plain, keyed)


@pytest.mark.parametrize(
    ("held", "name", "message"),
    [
        ((), None, r"where no lock is held: tag the activity with @needs_lock and pass LockInterceptor\(\)"),
        ((), "db", "where no lock is held"),
        (("db", "api"), None, "holds several locks, name one of them: 'db', 'api'"),
        (("db", "api"), "dp", r"current_lease\('dp'\): that lock is not held here; held are: 'db', 'api'"),
        (("db",), "api", r"current_lease\('api'\): that lock is not held here; held are: 'db'"),
        (("db", "db"), "db", r"current_lease\('db'\): that lock is held more than once here"),
    ],
)
def test_current_lease_that_is_not_clear(held: tuple[str, ...], name: str | None, message: str) -> None:
    """Asking for what is not held, or without saying which, tells what could have been meant."""
    with holding(*map(lease, held)), pytest.raises(LockConfigurationError, match=message):
        current_lease(name)


def test_one_name_with_several_keys() -> None:
    """Two locks of one name are told apart by their keys, and the message says how."""
    sender, receiver = lease("account", key="a"), lease("account", key="b")
    with holding(sender, receiver):
        assert current_lease("account[b]") is receiver
        with pytest.raises(LockConfigurationError, match=r"'account\[a\]', 'account\[b\]'"):
            current_lease("account")


async def test_where_a_lease_is_seen() -> None:
    """Child tasks and ``asyncio.to_thread`` inherit the lease; a thread of one's own is told what to do."""
    grant = lease()
    errors: list[Exception] = []

    def in_a_thread() -> None:
        try:
            current_lease()
        except LockConfigurationError as error:
            errors.append(error)

    with holding(grant):
        assert await asyncio.create_task(asyncio.to_thread(current_lease)) is grant
        # where new threads do inherit, this stands for one that was there before
        thread = threading.Thread(target=contextvars.Context().run, args=(in_a_thread,))
        thread.start()
        thread.join()
    assert "does not inherit the lease: hand it over" in str(errors[0])
    with pytest.raises(LockConfigurationError):
        current_lease()
