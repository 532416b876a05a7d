"""Renewing where a library has put its hands on threads or event loops. Each runs in a process of its own."""

import subprocess
import sys
import textwrap

import pytest

BODY = """
import asyncio, sys, threading
from datetime import timedelta
from temporalio import activity
from lock_interceptor import LockConfigurationError, LockInterceptor, LockPlugin, current_lease, needs_lock
from lock_interceptor.testing import InMemoryLockStore, LockedActivityEnvironment, quick_settings

@activity.defn
@needs_lock(lock_name="db")
async def body() -> str:
    lease = current_lease()
    ends = set()
    while len(ends) < 4:  # renewed three times
        lease.raise_if_lost()
        ends.add(lease.end)
        await asyncio.sleep(0.05)
    return "renewed"

async def run() -> None:
    async with LockedActivityEnvironment(InMemoryLockStore()) as environment:
        print(await environment.run(body))
    print([thread.name for thread in threading.enumerate() if thread.name == "lock_interceptor.keeper"])
"""


def said(program: str) -> list[str]:
    """The lines that a program prints after what all of them share."""
    code = textwrap.dedent(program).replace("BODY", BODY)
    call = [sys.executable, "-c", code]
    ended = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - ours
    assert ended.returncode == 0, ended.stderr
    return [line for line in ended.stdout.splitlines() if "lock." not in line]


def test_trio_asyncio() -> None:
    """Its policy makes no event loop for others: leases are renewed all the same, and closing is quick."""
    program = """
    import trio_asyncio
    BODY
    trio_asyncio.run(trio_asyncio.aio_as_trio(run))
    """
    assert said(program) == ["renewed", "[]"]


def test_a_policy_that_refuses() -> None:
    """Whatever policy is set, nobody but the worker depends on it."""
    program = """
    BODY
    class Refusing(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self):
            raise RuntimeError("no loops here")
    runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
    asyncio.set_event_loop_policy(Refusing())
    with runner:
        runner.run(run())
    """
    assert said(program) == ["renewed", "[]"]


@pytest.mark.parametrize("what", ["LockInterceptor", "LockPlugin"])
def test_gevent_is_refused(what: str) -> None:
    """Where threads are green a worker is refused when it is made, and told what to do instead."""
    program = f"""
    from gevent import monkey
    monkey.patch_all()
    BODY
    try:
        {what}(quick_settings(), store=InMemoryLockStore())
    except LockConfigurationError as error:
        print(error)
    {what}(quick_settings(disabled=True), store=InMemoryLockStore())  # needs no thread
    """
    (error,) = said(program)
    assert error.startswith("gevent.monkey.patch_all() has replaced the threads of this process")
    assert "in a worker process of their own" in error


def test_green_threads_of_anybody() -> None:
    """A library that nobody thought of, or one that comes late, is found out when a lock is held first."""
    program = """
    BODY
    interceptor_exists = LockInterceptor(quick_settings(), store=InMemoryLockStore())
    from gevent import monkey
    monkey.patch_all()
    sys.modules.pop("gevent.monkey")
    async def main():
        async with LockedActivityEnvironment(InMemoryLockStore()) as environment:
            try:
                await environment.run(body)
            except Exception as error:
                print(error.type, error.non_retryable)
    asyncio.run(main())
    """
    assert said(program)[-1] == "LockConfigurationError True"
