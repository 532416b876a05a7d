"""`needs_lock` on a part of a workflow stops the worker before it starts, and nothing else does."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from innocent_workflow import Innocent
from temporalio.client import Client, Interceptor, WorkflowFailureError, WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    Replayer,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)
from workflows_under_test import TAGGED, Run

from lock_interceptor import LockConfigurationError, LockInterceptor, LockPlugin, LockSettings
from lock_interceptor.testing import InMemoryLockStore
from lock_interceptor.worker.workflow_check import check_workflows


def interceptor() -> LockInterceptor:
    return LockInterceptor(LockSettings(), store=InMemoryLockStore())


def plugin() -> LockPlugin:
    return LockPlugin(LockSettings(), store=InMemoryLockStore())


class ClientInterceptor(LockInterceptor, Interceptor):
    """One that a client hands on to its workers."""


def with_interceptor(client: Client, **options: Any) -> Worker:
    return Worker(client, interceptors=[interceptor()], **options)


def with_interceptor_of_client(client: Client, **options: Any) -> Worker:
    ours = ClientInterceptor(LockSettings(), store=InMemoryLockStore())
    return Worker(Client(**{**client.config(), "interceptors": [ours]}), **options)


def with_plugin(client: Client, **options: Any) -> Worker:
    return Worker(client, plugins=[plugin()], **options)


def with_plugin_of_client(client: Client, **options: Any) -> Worker:
    return Worker(Client(**{**client.config(), "plugins": [plugin()]}), **options)


ROUTES = [with_interceptor, with_interceptor_of_client, with_plugin, with_plugin_of_client]
Route = Callable[..., Worker]


@pytest.mark.parametrize("flow", TAGGED, ids=lambda flow: flow.__name__)
def test_every_part_of_a_workflow(flow: type) -> None:
    """Whatever part is tagged, the message names it, its class, and what to do instead."""
    with pytest.raises(LockConfigurationError) as caught:
        check_workflows([Innocent, flow])
    assert caught.match(
        f"^@needs_lock on {TAGGED[flow]}: .*Tag the activity .* and call it from the workflow"
    )


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("flow", TAGGED, ids=lambda flow: flow.__name__)
async def test_worker_is_refused(client: Client, task_queue: str, route: Route, flow: type) -> None:
    """However the locks reach the worker, its constructor raises our error itself, with nothing around it."""
    with pytest.raises(LockConfigurationError, match=TAGGED[flow]) as caught:
        route(client, task_queue=task_queue, workflows=[flow])
    assert type(caught.value) is LockConfigurationError
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("route", ROUTES)
async def test_good_worker_works_right_after_a_refused_one(
    client: Client, task_queue: str, route: Route
) -> None:
    """A refused worker leaves nothing behind: with the workflow repaired the same client and queue serve it.

    The repaired workflow refers to locked activities in many ways, none of which is a mistake.
    """
    with pytest.raises(LockConfigurationError):
        route(client, task_queue=task_queue, workflows=[Run])
    async with route(client, task_queue=task_queue, workflows=[Innocent]):
        assert await client.execute_workflow("Flow", id=f"wf-{uuid4()}", task_queue=task_queue) == "ran"


async def history_of(client: Client, task_queue: str) -> WorkflowHistory:
    async with Worker(client, task_queue=task_queue, workflows=[Innocent]):
        handle = await client.start_workflow("Flow", id=f"wf-{uuid4()}", task_queue=task_queue)
        await handle.result()
    return await handle.fetch_history()


async def test_replayer(client: Client, task_queue: str) -> None:
    """A replayer refuses too, with the plugin when made and with an interceptor when it starts to replay."""
    history = await history_of(client, task_queue)
    with pytest.raises(LockConfigurationError, match=TAGGED[Run]):
        Replayer(workflows=[Run], plugins=[plugin()])
    replayer = Replayer(workflows=[Run], interceptors=[interceptor()])
    with pytest.raises(LockConfigurationError, match=TAGGED[Run]):
        await replayer.replay_workflow(history)


@pytest.mark.parametrize("how", [{"plugins": [plugin()]}, {"interceptors": [interceptor()]}])
async def test_replayer_without_mistakes(client: Client, task_queue: str, how: dict[str, Any]) -> None:
    """A good workflow replays with our plugin or interceptor although it ran without: no command differs."""
    history = await history_of(client, task_queue)
    result = await Replayer(workflows=[Innocent], **how).replay_workflow(history)
    assert result.replay_failure is None


class OffTheStack(LockInterceptor):
    """Asked from another thread, so the worker's constructor is nowhere on its call stack."""

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(super().workflow_interceptor_class, input).result()


@pytest.mark.parametrize("runner", [{}, {"workflow_runner": UnsandboxedWorkflowRunner()}])
async def test_safety_net(client: Client, task_queue: str, runner: dict[str, Any]) -> None:
    """Should a worker start with a tagged workflow after all, the workflow fails at once and for good."""
    ours = OffTheStack(LockSettings(), store=InMemoryLockStore())
    async with Worker(client, task_queue=task_queue, workflows=[Run], interceptors=[ours], **runner):
        with pytest.raises(WorkflowFailureError) as caught:
            await client.execute_workflow("Flow", id=f"wf-{uuid4()}", task_queue=task_queue)
    failure = caught.value.cause
    assert isinstance(failure, ApplicationError)
    assert (failure.type, failure.non_retryable) == ("LockConfigurationError", True)
    assert "method run() of workflow Run" in failure.message


async def test_safety_net_lets_others_pass(client: Client, task_queue: str) -> None:
    """Where the safety net watches, workflows without a mistake run as ever."""
    ours = OffTheStack(LockSettings(), store=InMemoryLockStore())
    async with Worker(client, task_queue=task_queue, workflows=[Innocent], interceptors=[ours]):
        assert await client.execute_workflow("Flow", id=f"wf-{uuid4()}", task_queue=task_queue) == "ran"


@pytest.mark.parametrize("route", ROUTES)
async def test_what_is_no_workflow_is_left_to_temporal(client: Client, task_queue: str, route: Route) -> None:
    """For an instance or a function in place of a class it is Temporal's error that is seen."""
    with pytest.raises(ValueError, match="missing attributes, was it decorated with @workflow"):
        route(client, task_queue=task_queue, workflows=[lambda: None])
