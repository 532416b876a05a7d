"""Refuses `needs_lock` on workflows, when the worker is made and not when it is too late."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from temporalio.worker import ExecuteWorkflowInput, Replayer, Worker, WorkflowInboundInterceptor

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.marker import MARK, read_specs
from lock_interceptor.worker.failures import to_application_error


def check_workflows(workflows: Iterable[type]) -> None:
    """Raise if a workflow class, or anything in it or in its bases, is tagged with `needs_lock`.

    Raises:
        LockConfigurationError: names the class, the method and the remedy.
    """
    for workflow in workflows:
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
            if any(read_specs(function) for function in _functions(member)):
                yield (
                    f"method {name}()"
                    if base is workflow
                    else f"method {name}(), inherited from {base.__qualname__},"
                )


def _functions(member: Any) -> Iterator[Any]:
    """The functions in a class attribute: methods, accessors, and the validator of an update."""
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    if isinstance(member, property):
        yield from (accessor for accessor in (member.fget, member.fset, member.fdel) if accessor)
    # an ordinary attribute may be an instance of a tagged class, and is no part of the workflow
    elif inspect.isroutine(member) or hasattr(member, "__wrapped__") or hasattr(member, "func"):
        yield member
    update = getattr(member, "_defn", None)
    yield from (part for part in (getattr(update, "fn", None), getattr(update, "validator", None)) if part)


def workflows_under_construction() -> Iterable[type] | None:
    """The workflows of the Worker or Replayer whose constructor is on the call stack.

    No hook hands them to a plain interceptor, but its hook for workflows is called from that constructor.
    None if it is not.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the public inspect.stack() reads source files, far slower
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Worker | Replayer):
            workflows: Iterable[type] = owner.config(active_config=True).get("workflows", ())
            return workflows
        frame = frame.f_back  # type: ignore[assignment]  # the loop ends at None
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
