"""Bodies of each kind for the faults around the lock. Process pools import this module.

A body says on a file when it began, when it was told that its lock is lost, and when it ended. It stops when
it is told, in the way of its kind: a coroutine is cancelled, a thread's heartbeat raises, a process asks.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from temporalio import activity

from lock_interceptor import LockLost, current_lease, needs_lock
from lock_interceptor.lease import clock

STEP = 0.02
"""Seconds between two looks of a body."""
SECOND = "second"
"""The other lock of a body that takes two."""


class Seen(NamedTuple):
    """What a body said."""

    at: float
    who: str
    what: str
    """``began``, ``told`` or ``ended``"""


@dataclass
class Work:
    """What a body is to do."""

    scene: str
    """The directory of its notes."""
    who: str
    seconds: float = 0.0
    """For which it works, unless it is told."""
    locks: tuple[str, ...] = ("lock",)
    """At whose leases it looks."""

    def note(self, what: str) -> None:
        """Say something, in one write."""
        notes = os.open(Path(self.scene, "bodies"), os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        try:
            os.write(notes, f"{clock()} {self.who} {what}\n".encode())
        finally:
            os.close(notes)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Say when it begins, is told, and ends."""
        self.note("began")
        try:
            yield
        except (LockLost, asyncio.CancelledError):
            self.note("told")
            raise
        finally:
            self.note("ended")

    def steps(self) -> Iterator[None]:
        """Until its time is over."""
        end = clock() + self.seconds
        while clock() < end:
            yield

    def until_cued(self) -> Iterator[None]:
        """Until the test leaves a cue."""
        while not Path(self.scene, "go").exists():
            yield

    def raise_if_lost(self) -> None:
        """Ask the leases."""
        for lock in self.locks:
            current_lease(lock).raise_if_lost()


def seen(scene: Path) -> list[Seen]:
    """What bodies have said so far, in order."""
    path = scene / "bodies"
    lines = path.read_text().splitlines() if path.exists() else []
    words = [line.split(" ", 2) for line in lines]
    return sorted(Seen(float(at), who, what) for at, who, what in words)


async def work_in_coroutine(work: Work) -> str:
    """Stops when it is cancelled."""
    with work.running():
        for _ in work.steps():
            await asyncio.sleep(STEP)
    return "done"


def work_in_thread(work: Work) -> str:
    """Stops when its heartbeat raises."""
    with work.running():
        for _ in work.steps():
            activity.heartbeat()
            time.sleep(STEP)
    return "done"


def work_in_process(work: Work) -> str:
    """Stops when a lease says that it is lost."""
    with work.running():
        for _ in work.steps():
            work.raise_if_lost()
            time.sleep(STEP)
    return "done"


@activity.defn
@needs_lock(lock_name="lock")
async def one_async(work: Work) -> str:
    return await work_in_coroutine(work)


@activity.defn
@needs_lock(lock_name="lock")
def one_thread(work: Work) -> str:
    return work_in_thread(work)


@activity.defn
@needs_lock(lock_name="lock")
def one_process(work: Work) -> str:
    return work_in_process(work)


@activity.defn
@needs_lock(lock_name="lock")
@needs_lock(lock_name=SECOND)
async def two_async(work: Work) -> str:
    return await work_in_coroutine(work)


@activity.defn
@needs_lock(lock_name="lock")
@needs_lock(lock_name=SECOND)
def two_thread(work: Work) -> str:
    return work_in_thread(work)


@activity.defn
@needs_lock(lock_name="lock")
@needs_lock(lock_name=SECOND)
def two_process(work: Work) -> str:
    return work_in_process(work)


@activity.defn
@needs_lock(lock_name="lock")
async def shielded_async(work: Work) -> str:
    """Goes on however often it is cancelled, and looks at its lease."""
    work.note("began")
    for _ in work.steps():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(STEP)
        if current_lease().lost:
            work.note("told")
            break
    work.note("ended")
    return "done"


@activity.defn
@needs_lock(lock_name="lock")
def silent_thread(work: Work) -> str:
    """Never heartbeats, and looks at its lease."""
    work.note("began")
    for _ in work.steps():
        time.sleep(STEP)
        if current_lease().lost:
            work.note("told")
            break
    work.note("ended")
    return "done"


def no_key(_: Work) -> int:
    """A mistake: a key is a text."""
    return 5


@activity.defn
@needs_lock(lock_name="lock", key=no_key)  # type: ignore[arg-type]
async def mistaken_async(work: Work) -> str:
    return await work_in_coroutine(work)


@activity.defn
@needs_lock(lock_name="lock", key=no_key)  # type: ignore[arg-type]
def mistaken_thread(work: Work) -> str:
    return work_in_thread(work)


@activity.defn
@needs_lock(lock_name="lock", key=no_key)  # type: ignore[arg-type]
def mistaken_process(work: Work) -> str:
    return work_in_process(work)


KINDS = ("async", "thread", "process")
ONE = dict(zip(KINDS, (one_async, one_thread, one_process), strict=True))
TWO = dict(zip(KINDS, (two_async, two_thread, two_process), strict=True))
MISTAKEN = dict(zip(KINDS, (mistaken_async, mistaken_thread, mistaken_process), strict=True))
