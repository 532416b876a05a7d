"""Refuses `needs_lock` on workflows, when the worker is made and not when it is too late."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

from temporalio.worker import ExecuteWorkflowInput, Replayer, Worker, WorkflowInboundInterceptor

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.marker import MARK, layers, read_specs
from lock_interceptor.worker.failures import to_application_error


def check_workflows(workflows: Iterable[type]) -> None:
    """Raise if a workflow class, or anything in it or in its bases, is tagged with `needs_lock`.

    Raises:
        LockConfigurationError: names the class, the method and the remedy.
    """
    # what is no class Temporal refuses better
    for workflow in filter(inspect.isclass, workflows):
        for where in _tagged(workflow):
            raise LockConfigurationError(
                f"@needs_lock on {where} of workflow {workflow.__qualname__}: a workflow cannot hold a lock. "
                "Tag the activity that does the work instead, and call it from the workflow"
            )


def _tagged(workflow: type) -> Iterator[str]:
    for base in workflow.__mro__:
        if MARK in vars(base):
            yield "the class" if base is workflow else f"the base class {base.__qualname__}"
        for name, member in vars(base).items():
            for part, function in _functions(name, member):
                if read_specs(function) and not _is_activity(function):
                    yield part if base is workflow else f"{part}, inherited from {base.__qualname__},"


def _functions(name: str, member: Any) -> Iterator[tuple[str, Any]]:
    """The functions in a class attribute, and what to call them."""
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    if isinstance(member, property):
        yield from ((f"property {name}", accessor) for accessor in (member.fget, member.fset, member.fdel))
    elif isinstance(member, functools.cached_property):
        yield f"property {name}", member.func
    # an ordinary attribute may be an instance of a tagged class, and is no part of the workflow
    elif inspect.isroutine(member) or isinstance(member, functools.partial | functools.partialmethod):
        yield f"method {name}()", member
        # a validator has no mark of its own, and another one may have taken its name in the class
        yield f"the validator of {name}()", getattr(getattr(member, "_defn", None), "validator", None)


def _is_activity(function: Any) -> bool:
    """Whether this is an activity that the workflow class refers to, such as ``step = pick``."""
    return any(hasattr(layer, "__temporal_activity_definition") for layer in layers(function))


def configuration_under_construction() -> Mapping[str, Any] | None:
    """The configuration of the Worker or Replayer whose constructor is on the call stack.

    No hook hands it to a plain interceptor, but its hook for workflows is called from that constructor. None
    if it is not.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - inspect.stack() reads source files, far slower
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Worker | Replayer):
            return owner.config(active_config=True)
        frame = frame.f_back
    return None


class RefusingWorkflowInboundInterceptor(WorkflowInboundInterceptor):
    """Fails a tagged workflow when it runs, should its class not have been seen at the start."""

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        """See base class."""
        try:
            check_workflows([input.type])
        except LockConfigurationError as error:
            raise to_application_error(error) from None
        return await super().execute_workflow(input)
