"""Activities that cannot be locked as they were called fail at once and for good, with the remedy."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from stage import Kind, Stage
from temporalio import activity
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError

from lock_interceptor import current_lease, needs_lock


async def refusal(stage: Stage, name: str, *args: object, **how: object) -> str:
    """The message with which the activity fails, for good and for its configuration."""
    with pytest.raises(WorkflowFailureError) as caught:
        await stage.run(name, *args, **how)
    error = caught.value.cause
    # the server puts an activity's failure into one more error, and there is no server for a local one
    if isinstance(error, ActivityError):
        error = error.cause
    assert isinstance(error, ApplicationError)
    assert (error.type, error.non_retryable) == ("LockConfigurationError", True)
    return error.message


async def test_local_activity(stage: Stage, kind: Kind) -> None:
    """A local activity is refused, and told what to call instead."""
    async with stage.worker(kind=kind):
        message = await refusal(stage, kind.activity, stage.play(), local=True)

    assert f"local activity {kind.activity} cannot hold a lock" in message
    assert "workflow.execute_activity()" in message
    assert not stage.keys()
    assert not list(stage.scene.iterdir())


async def test_missing_schedule_to_close(stage: Stage, kind: Kind) -> None:
    """Without a schedule_to_close_timeout the activity is refused, with the call to write."""
    async with stage.worker(kind=kind):
        message = await refusal(stage, kind.activity, stage.play(), schedule_to_close=None, start_to_close=10)

    assert f"activity {kind.activity} needs a lock, and so a schedule_to_close_timeout" in message
    assert (
        f"workflow.execute_activity({kind.activity}, ..., schedule_to_close_timeout=timedelta(minutes=10))"
        in message
    )
    assert not stage.keys()
    assert not list(stage.scene.iterdir())


async def test_run_timeout_stands_in_for_schedule_to_close(stage: Stage, kind: Kind) -> None:
    """A workflow's run timeout bounds its activities too, so it is accepted in its place."""
    async with stage.worker(kind=kind):
        await stage.run(
            kind,
            stage.play(),
            schedule_to_close=None,
            start_to_close=10,
            run_timeout=timedelta(minutes=1),
        )


@activity.defn
@needs_lock(lock_name="lock")
async def completing_elsewhere() -> None:
    activity.raise_complete_async()


@activity.defn
@needs_lock(lock_name="lock")
def completing_elsewhere_from_thread() -> None:
    activity.raise_complete_async()


@pytest.mark.parametrize("function", [completing_elsewhere, completing_elsewhere_from_thread])
async def test_asynchronous_completion(stage: Stage, function: object) -> None:
    """An activity whose end cannot be seen cannot be locked."""
    with ThreadPoolExecutor(1) as threads:
        async with stage.worker(function, activity_executor=threads):
            message = await refusal(stage, function.__name__)

    assert "a locked activity cannot complete asynchronously" in message
    assert "do without @needs_lock" in message


async def test_asynchronous_completion_in_a_process(stage: Stage, kinds: dict[str, Kind]) -> None:
    """The same is seen in a process pool."""
    process = kinds["process"]
    async with stage.worker(
        completing_elsewhere_from_thread,
        activity_executor=process.executor,
        shared_state_manager=process.manager,
    ):
        message = await refusal(stage, completing_elsewhere_from_thread.__name__)

    assert "a locked activity cannot complete asynchronously" in message


@activity.defn
@needs_lock(lock_name="lock", key=lambda order: order["region"])
async def raising(order: dict[str, str]) -> None:
    raise AssertionError("it must not run")


@activity.defn
@needs_lock(lock_name="lock", key=lambda order: order.get("region"))
async def returning_none(order: dict[str, str]) -> None:
    raise AssertionError("it must not run")


@activity.defn
@needs_lock(lock_name="lock", key=lambda: "region")
async def taking_too_little(order: dict[str, str]) -> None:
    raise AssertionError("it must not run")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (raising, "raised KeyError"),
        (returning_none, "returned NoneType, not a string"),
        (taking_too_little, "raised TypeError for 1 argument(s)"),
    ],
)
async def test_key_function(stage: Stage, function: object, reason: str) -> None:
    """A key function that does not name a lock fails the activity, which is named."""
    async with stage.worker(function):
        message = await refusal(stage, function.__name__, {})

    assert f"the key function of @needs_lock on activity {function.__name__} {reason}" in message
    assert not stage.keys()


async def test_mistake_in_the_body(stage: Stage) -> None:
    """A body that asks for a lease that it does not have is told which ones it has."""

    @activity.defn
    @needs_lock(lock_name="lock")
    async def asking_for_another() -> None:
        current_lease("another")

    async with stage.worker(asking_for_another):
        message = await refusal(stage, "asking_for_another")

    assert "current_lease('another'): that lock is not held here; held are: 'lock'" in message
