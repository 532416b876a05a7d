"""`holding`: an activity tested as a function has a lease."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from temporalio import activity
from temporalio.testing import ActivityEnvironment

from lock_interceptor import Lease, LockConfigurationError, LockLost, current_lease, needs_lock
from lock_interceptor.testing import holding


@activity.defn
@needs_lock(lock_name="warehouse", max_locks=3, key=str)
async def in_coroutine(region: str) -> tuple[str, str | None, int, int]:
    """Tell the lease."""
    await asyncio.sleep(0)
    lease = current_lease("warehouse")
    assert region == lease.key
    return lease.name, lease.key, lease.token, lease.slot


@activity.defn
@needs_lock(lock_name="warehouse", max_locks=3, key=str)
def in_thread(region: str) -> tuple[str, str | None, int, int]:
    """Tell the lease."""
    activity.heartbeat()
    return current_lease().name, region, current_lease().token, current_lease().slot


async def test_a_bare_call_has_the_lease() -> None:
    """The tagged function, called as it is, sees the lease as given, and none afterwards."""
    with holding("warehouse", key="north", token=7, slot=2):
        assert await in_coroutine("north") == ("warehouse", "north", 7, 2)
    with pytest.raises(LockConfigurationError, match="where no lock is held"):
        await in_coroutine("north")


async def test_activity_environment_has_the_lease() -> None:
    """So does the function in Temporal's environment, async or not, and in a thread."""
    environment = ActivityEnvironment()
    with holding("warehouse", key="north", token=7, slot=2):
        assert await environment.run(in_coroutine, "north") == ("warehouse", "north", 7, 2)
        assert environment.run(in_thread, "north") == ("warehouse", "north", 7, 2)
        assert await asyncio.to_thread(environment.run, in_thread, "north") == ("warehouse", "north", 7, 2)


def test_stacked_locks_nest() -> None:
    """Each lease has its name, and the inner one ends alone."""
    with holding("all", token=1) as outer:
        with holding("warehouse", key="north", token=2) as inner:
            assert current_lease("all") is outer
            assert current_lease("warehouse[north]") is inner
            with pytest.raises(LockConfigurationError, match="several locks"):
                current_lease()
        assert current_lease() is outer


def test_it_lasts_until_it_is_lost() -> None:
    """By default it never ends by itself; once lost it stays so, and tells the reason."""
    with holding("warehouse") as lease:
        assert not lease.lost
        lease.raise_if_lost()
        lease.lose("the server forgot it")
        assert lease.lost
        with pytest.raises(LockLost, match=r"lock warehouse was lost .*: the server forgot it"):
            lease.raise_if_lost()


def test_it_can_expire() -> None:
    """A lease that is over already stands for one that ended unnoticed."""
    with holding("warehouse", expires_in=timedelta(0)) as lease:
        assert lease.lost


def test_the_name_has_to_name_a_lock() -> None:
    """A name that no lock can have is refused as in the tag."""
    with pytest.raises(LockConfigurationError, match="lock_name"), holding(""):
        pass


@pytest.fixture
def held() -> Iterator[Lease]:
    """A lease from a fixture, entered outside of the test."""
    with holding("warehouse", token=9) as lease:
        yield lease


def test_it_works_from_a_fixture(held: Lease) -> None:
    """A synchronous test has the lease of a fixture."""
    assert current_lease() is held


def test_contexts_may_differ() -> None:
    """Entered in one context and left in another, as async fixtures are, it does no harm."""
    entered = holding("warehouse")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(entered.__enter__).result()
    assert not entered.__exit__(None, None, None)
    with pytest.raises(LockConfigurationError, match="where no lock is held"):
        current_lease()
