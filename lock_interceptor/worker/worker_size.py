"""How many of a worker's permits waiters may take where each occupies one: at most half of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from temporalio import activity
from temporalio.worker import Interceptor, Worker

from lock_interceptor.lease import clock
from lock_interceptor.room import WaitingRoom

FEW = 2
"""Waiters in a worker of which nothing is known."""
LOOK_EVERY = 30.0
"""Seconds after which a task queue's workers are looked at again: there may be another one."""


class RoomOfWorkers:
    """Makes the room of a `LockInterceptor` small enough for each of the workers that it serves.

    A worker with workflows tells its size when it is made. No hook tells it of one without, so that the
    workers which run are looked for when a locked activity comes.
    """

    def __init__(self, room: WaitingRoom) -> None:
        self._room = room
        self._known = False
        self._looked: dict[tuple[str, str], float] = {}

    def learn(self, config: Mapping[str, Any]) -> None:
        """Take note of a worker's permits. A tuner does not say how many it will give."""
        self._known = True
        permits = config.get("max_concurrent_activities")
        if permits is not None and config.get("tuner") is None:
            self._room.size = min(self._room.size, max(permits // 2, 1))

    def look(self, interceptor: Interceptor, info: activity.Info) -> None:
        """Learn of the worker in which this activity runs, and of all others that have the interceptor."""
        place = (info.namespace, info.task_queue)
        if clock() - self._looked.get(place, float("-inf")) < LOOK_EVERY:
            return
        self._looked[place] = clock()
        # it reads frames: whatever is wrong there must not fail an activity
        with contextlib.suppress(Exception):
            for config in _configurations(interceptor, info):
                self.learn(config)
        if not self._known:
            self._room.size = min(self._room.size, FEW)


def _configurations(interceptor: Interceptor, info: activity.Info) -> Iterator[Mapping[str, Any]]:
    """The configurations of the workers of this loop that have the interceptor, or this task queue."""
    for worker in _running_workers():
        config = worker.config(active_config=True)
        client = config["client"].config(active_config=True)
        has_it = any(each is interceptor for each in (*config["interceptors"], *client["interceptors"]))
        # the interceptor may be inside another one
        if has_it or (client["namespace"], config["task_queue"]) == (info.namespace, info.task_queue):
            yield config


def _running_workers() -> Iterator[Worker]:
    """The workers whose `run` is under way in this loop, as the tasks tell that await it."""
    for task in asyncio.all_tasks():
        awaited: Any = task.get_coro()
        while awaited is not None:
            frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
            if frame is not None and frame.f_code.co_varnames[:1] == ("self",):
                owner = frame.f_locals.get("self")
                if isinstance(owner, Worker):
                    yield owner
                    break
            awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
