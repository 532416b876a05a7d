"""The locked activities of the tests, and the workflow that calls them. Process pools import this module.

A body leaves notes in a directory and goes on at a cue found there, which works alike in a coroutine, a
thread and another process.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity, workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import CancelledError

from lock_interceptor import current_lease, needs_lock

STEP = 0.01


@dataclass
class Play:
    """What a body is to do."""

    scene: str
    """The directory of its notes and cues."""
    name: str = ""
    """Tells the notes of one execution from those of others."""
    waits: bool = False
    """Go on only at the cue "go", or "go2" for the second attempt."""
    heartbeats: bool = False
    """Heartbeat while waiting for the cue."""
    asks_lease: bool = False
    """Call `raise_if_lost` while waiting for the cue."""
    swallows: bool = False
    """Return a value when cancelled."""
    fails: bool = False

    def note(self, what: str, text: str = "") -> None:
        """Leave a note, whole from the first moment."""
        draft = Path(self.scene, f".{self.name}{what}")
        draft.write_text(text)
        draft.rename(Path(self.scene, f"{self.name}{what}"))

    def steps(self) -> Iterator[None]:
        """Until the cue comes."""
        cues = [Path(self.scene, f"{self.name}go{attempt}") for attempt in ("", activity.info().attempt)]
        while self.waits and not any(cue.exists() for cue in cues):
            if self.heartbeats:
                activity.heartbeat("step")
            if self.asks_lease:
                current_lease().raise_if_lost()
            yield

    def begin(self) -> int:
        """Note the lease, and return the attempt."""
        attempt, lease = activity.info().attempt, current_lease()
        self.note(f"began{attempt}", f"{lease.token} {lease.slot} {lease.lost}")
        return attempt

    def end(self) -> str:
        """Fail or return."""
        if self.fails:
            raise ValueError("the body's own error")
        lease = current_lease()
        return f"{lease.token} {lease.slot}"


@activity.defn
@needs_lock(lock_name="lock")
async def in_coroutine(play: Play) -> str:
    attempt = play.begin()
    try:
        for _ in play.steps():
            await asyncio.sleep(STEP)
    except asyncio.CancelledError:
        play.note(f"cancelled{attempt}")
        if not play.swallows:
            raise
    play.note(f"done{attempt}")
    return play.end()


@activity.defn
@needs_lock(lock_name="lock")
def in_thread(play: Play) -> str:
    return _in_sync_code(play)


@activity.defn
@needs_lock(lock_name="lock")
def in_process(play: Play) -> str:
    return _in_sync_code(play)


def _in_sync_code(play: Play) -> str:
    attempt = play.begin()
    try:
        for _ in play.steps():
            time.sleep(STEP)
            _raise_if_cancelled()
    except BaseException as error:
        play.note(f"stopped{attempt}", type(error).__name__)
        raise
    play.note(f"done{attempt}")
    return play.end()


def _raise_if_cancelled() -> None:
    """What a thread is spared, and a process has to do itself."""
    if activity.is_cancelled():
        raise CancelledError("seen by the body")


@dataclass
class Call:
    """An activity, and how the workflow is to call it; times are seconds."""

    activity: str
    args: list[Any] = field(default_factory=list)
    schedule_to_close: float | None = 60
    start_to_close: float | None = None
    heartbeat: float | None = None
    attempts: int = 0
    priority: int | None = None
    local: bool = False
    backoff: float = 0.1


@workflow.defn
class CallActivity:
    """Calls one activity and waits for its end, even when cancelled."""

    @workflow.run
    async def run(self, call: Call) -> Any:
        retry = RetryPolicy(initial_interval=timedelta(seconds=call.backoff), maximum_attempts=call.attempts)
        if call.local:
            return await workflow.execute_local_activity(
                call.activity,
                args=call.args,
                schedule_to_close_timeout=_seconds(call.schedule_to_close),
                retry_policy=retry,
            )
        return await workflow.execute_activity(
            call.activity,
            args=call.args,
            schedule_to_close_timeout=_seconds(call.schedule_to_close),
            start_to_close_timeout=_seconds(call.start_to_close),
            heartbeat_timeout=_seconds(call.heartbeat),
            retry_policy=retry,
            priority=Priority(priority_key=call.priority),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )


def _seconds(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)
