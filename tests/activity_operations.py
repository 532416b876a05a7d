"""What an operator can do to a pending activity, and in which order those in line go on."""

import asyncio
from typing import Any

from stage import Stage, until
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import (
    PauseActivityRequest,
    ResetActivityRequest,
    UnpauseActivityRequest,
)
from temporalio.client import WorkflowHandle

from lock_interceptor.store import WaiterState

Handle = WorkflowHandle[Any, Any]


async def _which(stage: Stage, handle: Handle) -> dict[str, Any]:
    pending = await stage.pending(handle)
    assert pending is not None
    return {
        "namespace": stage.client.namespace,
        "execution": WorkflowExecution(workflow_id=handle.id, run_id=handle.result_run_id or ""),
        "id": pending.activity_id,
    }


async def pause(stage: Stage, handle: Handle) -> None:
    """Pause the workflow's activity."""
    await stage.client.workflow_service.pause_activity(PauseActivityRequest(**await _which(stage, handle)))


async def unpause(stage: Stage, handle: Handle) -> None:
    """Let it go on."""
    await stage.client.workflow_service.unpause_activity(
        UnpauseActivityRequest(**await _which(stage, handle))
    )


async def reset(stage: Stage, handle: Handle) -> None:
    """Let it begin anew, with its first attempt."""
    await stage.client.workflow_service.reset_activity(ResetActivityRequest(**await _which(stage, handle)))


async def until_paused(stage: Stage, handle: Handle) -> PendingActivityInfo:
    """Wait until the attempt has ended and no other one begins."""

    async def paused() -> PendingActivityInfo | None:
        info = await stage.pending(handle)
        state = PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED
        return info if info is not None and info.state == state else None

    info: PendingActivityInfo = await until(paused, "a paused activity")
    return info


async def until_line(stage: Stage, *line: tuple[Handle, bool]) -> list[WaiterState]:
    """Wait until these workflows' activities, and no others, are in line: present (True) or parked."""
    expected = [(handle.id, present) for handle, present in line]

    waiters: tuple[WaiterState, ...] = ()

    async def as_expected() -> bool:
        nonlocal waiters
        waiters = (await stage.state()).waiters
        return [(who.party.workflow, who.present) for who in waiters] == expected

    try:
        await until(as_expected, "the line")
    except TimeoutError:
        raise AssertionError(f"expected {expected}, there is {waiters}") from None
    return list(waiters)


async def tokens_of(*handles: Handle) -> list[int]:
    """The fencing tokens that the workflows' activities ran with."""
    results = await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 20)
    return [int(result.split()[0]) for result in results]
