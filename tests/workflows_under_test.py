"""Workflows that make the mistake of tagging a part of themselves.

A module of its own, and a light one, because the workflow sandbox imports it anew.
"""

import functools
from collections.abc import Callable
from typing import Any

from temporalio import workflow

from lock_interceptor import needs_lock


@needs_lock
def tagged_helper(*_: object) -> None:
    """Not an activity, so where a workflow class has it, it is a mistake."""


def passing_on(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What a user's own decorator does."""

    @functools.wraps(fn)
    async def wrapper(*args: Any) -> Any:
        return await fn(*args)

    return wrapper


@workflow.defn(name="Flow")
class Run:
    @workflow.run
    @needs_lock(lock_name="db")
    async def run(self) -> str:
        return "ran"


@workflow.defn(name="Flow")
class WrappedRun:
    @workflow.run
    @passing_on
    @needs_lock
    async def run(self) -> str:
        return "ran"


@workflow.defn(name="Flow")
class Signal:
    @workflow.run
    async def run(self) -> None: ...

    @workflow.signal
    @needs_lock
    def changed(self) -> None: ...


@workflow.defn(name="Flow")
class Query:
    @workflow.run
    async def run(self) -> None: ...

    @workflow.query
    @needs_lock
    def state(self) -> str:
        return ""


@workflow.defn(name="Flow")
class Update:
    @workflow.run
    async def run(self) -> None: ...

    @workflow.update
    @needs_lock
    async def change(self, to: str) -> None: ...


@workflow.defn(name="Flow")
class Validator:
    @workflow.run
    async def run(self) -> None: ...

    @workflow.update
    async def change(self, to: str) -> None: ...

    @change.validator
    @needs_lock
    def check(self, to: str) -> None: ...


@workflow.defn(name="Flow")
class HiddenValidator:
    @workflow.run
    async def run(self) -> None: ...

    @workflow.update
    async def change(self, to: str) -> None: ...

    @change.validator
    @needs_lock
    def _(self, to: str) -> None: ...

    _ = None  # as a second validator would, this takes the name


class MixIn:
    @needs_lock
    def helper(self) -> None: ...


@workflow.defn(name="Flow")
class Mixed(MixIn):
    @workflow.run
    async def run(self) -> None: ...


class Base:
    @workflow.run
    @needs_lock
    async def run(self) -> None: ...


@workflow.defn(name="Flow")
class Inherited(Base):
    @workflow.run
    async def run(self) -> None: ...


@needs_lock
class TaggedBase:
    def __call__(self) -> None: ...


@workflow.defn(name="Flow")
class OfTaggedBase(TaggedBase):
    @workflow.run
    async def run(self) -> None: ...


@workflow.defn(name="Flow")
class Property:
    @workflow.run
    async def run(self) -> None: ...

    @property
    @needs_lock
    def state(self) -> str:
        return ""


@workflow.defn(name="Flow")
class Setter:
    @workflow.run
    async def run(self) -> None: ...

    @property
    def state(self) -> str:
        return ""

    @state.setter
    @needs_lock
    def state(self, to: str) -> None: ...


@workflow.defn(name="Flow")
class CachedProperty:
    @workflow.run
    async def run(self) -> None: ...

    @functools.cached_property
    @needs_lock
    def state(self) -> str:
        return ""


@workflow.defn(name="Flow")
class Static:
    @workflow.run
    async def run(self) -> None: ...

    @staticmethod
    @needs_lock
    def helper() -> None: ...


@workflow.defn(name="Flow")
class OfClass:
    @workflow.run
    async def run(self) -> None: ...

    @needs_lock
    @classmethod
    def helper(cls) -> None: ...


@workflow.defn(name="Flow")
class Partial:
    @workflow.run
    async def run(self) -> None: ...

    helper = functools.partialmethod(tagged_helper, 1)


TAGGED: dict[type, str] = {
    Run: r"method run\(\) of workflow Run",
    WrappedRun: r"method run\(\) of workflow WrappedRun",
    Signal: r"method changed\(\) of workflow Signal",
    Query: r"method state\(\) of workflow Query",
    Update: r"method change\(\) of workflow Update",
    Validator: r"the validator of change\(\) of workflow Validator",
    HiddenValidator: r"the validator of change\(\) of workflow HiddenValidator",
    Mixed: r"method helper\(\), inherited from MixIn, of workflow Mixed",
    Inherited: r"method run\(\), inherited from Base, of workflow Inherited",
    OfTaggedBase: "the base class TaggedBase of workflow OfTaggedBase",
    Property: r"property state of workflow Property",
    Setter: r"property state of workflow Setter",
    CachedProperty: r"property state of workflow CachedProperty",
    Static: r"method helper\(\) of workflow Static",
    OfClass: r"method helper\(\) of workflow OfClass",
    Partial: r"method helper\(\) of workflow Partial",
}
"""Each mistake, and where a message has to say that it is."""
