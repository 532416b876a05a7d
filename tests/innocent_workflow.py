"""A workflow that makes no mistake, close as it may look.

A module of its own, and a light one, because the workflow sandbox imports it anew.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from temporalio import activity, workflow

from lock_interceptor import needs_lock


@activity.defn
@needs_lock
async def locked(order: str = "") -> str:
    return order


@activity.defn
@needs_lock
class LockedClass:
    async def __call__(self) -> None: ...


@dataclass
class Steps:
    """An object with a function in it."""

    func: Callable[..., Any]


@workflow.defn(name="Flow")
class Innocent:
    """Refers to locked activities in every way that a workflow may."""

    step = locked
    static_step = staticmethod(locked)
    prepared = functools.partial(locked, "x")
    steps = {"a": locked, "b": LockedClass}  # noqa: RUF012 - as users write it
    by_class = LockedClass
    by_instance = LockedClass()
    held = Steps(locked)

    class Inner:
        """Activities kept with the workflow that uses them."""

        @activity.defn(name="inner")
        @needs_lock
        def step(self) -> None: ...

    @staticmethod
    @activity.defn(name="own")
    @needs_lock
    async def own_activity() -> None: ...

    @workflow.run
    async def run(self) -> str:
        return "ran"

    @property
    def state(self) -> str:
        return ""

    @workflow.update
    async def change(self, to: str) -> None: ...

    @change.validator
    def check(self, to: str) -> None: ...
