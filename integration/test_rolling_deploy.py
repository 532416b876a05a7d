"""Containers of workers are replaced one after the other while locks are in demand."""

from scene import Scene
from stack import Stack, container
from stage import until
from workers import WorkerContainer

from lock_interceptor import LockSettings, RedisLockStore
from lock_interceptor.store import LockId

WAITERS = 30
WAIT = {"LOCK_MAX_WAIT_SECONDS": "60"}


async def line(scene: Scene[WorkerContainer], store: RedisLockStore) -> list[int]:
    """The numbers of the visitors in line, in order, when all of them wait in some worker."""
    lock = LockId(scene.application, "one")

    async def everybody() -> list[int] | None:
        waiters = (await store.inspect(lock, waiters=2 * WAITERS)).waiters
        here = [int(waiter.party.workflow.split("-")[1]) for waiter in waiters if waiter.present]
        return here if len(here) == len(waiters) == WAITERS else None

    found: list[int] = await until(everybody, "everybody in line and in a worker", 60)
    return found


async def test_rolling_restart_while_many_wait(stack: Stack, scene: Scene[WorkerContainer]) -> None:
    """Everybody keeps the place in line while all the workers that they wait in are replaced."""
    await scene.watch(container("redis"))
    store = RedisLockStore(LockSettings(application_name=scene.application, redis_url=stack.redis_url))
    try:
        keeper = await scene.start(**WAIT)
        with keeper.hanging():
            await scene.visitors.come("one", times=1)
            await scene.until(lambda: keeper.working, "a body that holds the lock")
            for _ in range(2):
                await scene.start(**WAIT)
            for number in range(WAITERS):
                # nobody dies here, and on a busy machine none is to be taken for dead
                await scene.visitors.come(("one", "one-in-thread")[number % 2], times=1, heartbeat=20)
            before = await line(scene, store)
            for old in scene.workers[1:]:
                with scene.run.fault("worker replaced"):
                    await scene.start(**WAIT)
                    await old.stop()
            assert await line(scene, store) == before
        scene.visits = await scene.visitors.done(enough=False)
        await scene.stop()
    finally:
        await store.close()
    await scene.conclude(
        f"rolling restart, {WAITERS} waiting",
        at_least={"faults": 2, "clients": 5, "grants": WAITERS + 1},
        at_most={"lost": 0},
    )
    in_order = [number for number, _ in sorted(scene.visits, key=lambda visit: visit[1])]
    assert in_order == [0, *before]


async def test_a_deploy_changes_the_limit(scene: Scene[WorkerContainer]) -> None:
    """Old and new workers share the lock: nobody is evicted, and whoever asks is bound by its own limit."""
    await scene.watch(container("redis"))
    async with scene.load(activities=("seats", "seats-in-thread"), SEATS="3"):
        for seats in (1, 5):
            for old in await scene.alive():
                with scene.run.fault(f"deploy of {seats}"):
                    await scene.start(SEATS=str(seats))
                    await old.stop()
            await scene.until_served(6)
    report = await scene.conclude(
        "max_locks 3, 1, 5", at_least={"faults": 4, "clients": 6, "limits changed": 2}, at_most={"lost": 0}
    )
    assert report.counts["most believers at once"] > 3
