"""What `needs_lock` refuses to tag: parts of workflows, and what is no activity."""

import functools
from typing import Any

import pytest
from temporalio import activity, workflow

from lock_interceptor import LockConfigurationError, needs_lock
from lock_interceptor.marker import read_specs


@workflow.defn
class Flow:
    @workflow.init
    def __init__(self) -> None: ...

    @workflow.run
    async def run(self) -> None: ...


class UndefinedFlow:
    @workflow.run
    async def run(self) -> None: ...


@workflow.signal
async def on_signal(self: object) -> None: ...


@workflow.query
def on_query(self: object) -> None: ...


@workflow.update
async def on_update(self: object) -> None: ...


class Activities:
    @activity.defn
    def pick(self) -> None: ...


@pytest.mark.parametrize(
    ("target", "part"),
    [
        (Flow, "workflow class"),
        (type("Subclass", (Flow,), {}), "workflow class"),
        (UndefinedFlow, "workflow class"),
        (Flow.run, "workflow method"),
        (UndefinedFlow.run, "workflow method"),
        (Flow.__init__, "workflow method"),
        (on_signal, "signal handler"),
        (on_query, "query handler"),
        (on_update, "update handler"),
        (functools.wraps(on_update)(lambda _: None), "update handler"),
    ],
)
def test_visible_parts_of_a_workflow_are_refused(target: Any, part: str) -> None:
    """Above a workflow's decorators the mistake is refused at once, with what to do instead."""
    with pytest.raises(LockConfigurationError, match=rf"{part}.*tag the activity"):
        needs_lock(target)
    assert read_specs(target) == ()


@pytest.mark.parametrize(
    ("target", "advice"),
    [
        ("warehouse", r"write @needs_lock\(lock_name='warehouse'\)"),
        (3, r"write @needs_lock\(max_locks=3\)"),
        (True, "True is not a function"),
        (["warehouse"], r"\['warehouse'\] is not a function"),
        (property(lambda _: None), "is not a function"),
        (type("Methods", (), {"pick": print}), "class Methods has no __call__.*tag the methods"),
        (Activities().pick, "Activities.pick takes no attributes"),
        (print, "print takes no attributes"),
    ],
)
def test_what_cannot_be_tagged(target: Any, advice: str) -> None:
    """A target that cannot bear a mark, or is no activity, is refused with what to write instead."""
    with pytest.raises(LockConfigurationError, match=advice):
        needs_lock(target)
