"""From the end of one body to the start of the next, and how much of a lock's time is used."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence
from itertools import pairwise

import polled_lock
import redis
import temporal_side
from contestants import installed_peers, settings_for
from measuring import Bench, percentile, until
from temporal_side import LIMIT, PolledTurn, Turn, slot_use, worker
from temporalio.client import Client
from turns import Crowd, FloorCrowd, NotingCrowd, OtherProcess, OurCrowd, PythonRedisLockCrowd, RedisPyCrowd

from lock_interceptor import LockInterceptor, LockPlugin, LockSettings
from lock_interceptor.dev import DevServers, RedisServer, TemporalServer
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.store import LockId

THROUGH = ", through Temporal"
BETWEEN = " to another worker"


async def measure(bench: Bench) -> None:
    with DevServers(TemporalServer(headless=True), RedisServer()) as servers:
        for number in range(bench.rounds):
            await _round_trip(bench, servers.redis)
            await _crowds(bench, servers.redis, number)
            await _parts(bench, servers.redis, number)
            await _workers(bench, servers.redis, number)
            await _through_temporal(bench, servers, number)


async def _round_trip(bench: Bench, server: RedisServer) -> None:
    """The unit in which a hand-over is best counted."""
    client = redis.asyncio.Redis.from_url(server.url, protocol=2)
    # a hand-over comes after a pause, in which both sides go to sleep
    for case, trips, pause in (
        ("SET NX PX", bench.size(1000, 50), 0.0),
        ("SET NX PX after 5 ms of silence", bench.size(200, 10), 0.005),
    ):
        took = []
        for _ in range(trips):
            await asyncio.sleep(pause)
            began = time.perf_counter()
            await client.set("trip", "me", nx=True, px=1000)
            took.append(time.perf_counter() - began)
        bench.add("one round trip", case, "floor", "ms", percentile(took, 0.5) * 1000)
    await client.aclose()


async def _crowds(bench: Bench, server: RedisServer, number: int) -> None:
    _, missing = installed_peers()
    peers: list[type[Crowd]] = [RedisPyCrowd]
    if not any("python-redis-lock" in text for text in missing):
        peers.append(PythonRedisLockCrowd)
    for text in missing:
        bench.results.remark(text)
    # members, seconds of a body, whether others take part: with many they mostly show their threads
    cases = bench.size(
        [
            (2, 0.005, True), (11, 0.005, True), (11, 0.05, True), (101, 0.005, True), (101, 0.05, True),
            (1001, 0.005, False), (1001, 0.05, False), (101, 1.0, False),
        ],
        [(2, 0.005, True), (5, 0.005, False)],
    )  # fmt: skip
    for members, seconds, with_others in cases:
        kinds: list[type[Crowd]] = [OurCrowd, FloorCrowd, *(peers if with_others else [])]
        for kind in bench.order(kinds, number):
            case = f"{members - 1:,} waiting, bodies of {seconds * 1000:g} ms"
            bench.say(f"round {number + 1}, {case}, {kind.name}")
            crowd = kind(server.url, f"crowd-{secrets.token_hex(4)}", members, seconds)
            async with crowd.running():
                if isinstance(crowd, OurCrowd):
                    await _formed(server, crowd)
                else:  # the others do not tell: time to get there, with a connection for each
                    await asyncio.sleep(0.1 + 0.002 * members)
                start = time.monotonic()
                await asyncio.sleep(bench.size(max(1.3, 3.2 * seconds, 0.006 * members), 0.3))
                end = time.monotonic()
            _note(bench, case, crowd, start, end)


async def _formed(server: RedisServer, *crowds: Crowd) -> None:
    """Until all but one wait: the time it takes to form a line is not what is measured."""
    store = RedisLockStore(settings_for(server.url))
    members = sum(crowd.members for crowd in crowds)

    async def formed() -> bool:
        state = await store.inspect(LockId("bench", crowds[0].lock), waiters=0)
        return state.waiting >= members - 1 - members // 100

    await until(formed, "a line", 30)
    await store.close()
    # the loop has much to do yet of what came with them: the first hand-overs would be those of arriving
    await asyncio.sleep(0.05 + 0.001 * members)


def _note(bench: Bench, case: str, crowd: Crowd, start: float, end: float) -> None:
    use = slot_use([(began, ended) for _, began, ended in crowd.turns], 1, start, end)
    bench.add("slot use", case, crowd.name, "%", use.used * 100)
    _note_gaps(bench, case, crowd.name, use.gaps or [end - start])


def _note_gaps(bench: Bench, case: str, who: str, gaps: Sequence[float], where: str = "") -> None:
    for part in (0.5, 0.9, 0.99):
        measure = f"p{part * 100:.0f} of a hand-over{where}"
        bench.add(measure, case, who, "ms", percentile(gaps, part) * 1000)


async def _parts(bench: Bench, server: RedisServer, number: int) -> None:
    """Where the time of a hand-over goes."""
    bench.say(f"round {number + 1}, parts of a hand-over")
    crowd = NotingCrowd(server.url, f"parts-{secrets.token_hex(4)}", 11, 0.005)
    async with crowd.running():
        await _formed(server, crowd)
        await asyncio.sleep(bench.size(1.5, 0.3))
    parts = list(crowd.parts())
    for name in parts[0]:
        took = percentile([part[name] for part in parts], 0.5)
        bench.add("parts of a hand-over, p50", name, crowd.name, "ms", took * 1000)


async def _workers(bench: Bench, server: RedisServer, number: int) -> None:
    """The same hand-over when the next one is in another worker of this process, or in another process."""
    members, seconds = bench.size((10, 0.005), (2, 0.005))
    for case, kinds in (
        ("another worker of the process", (OurCrowd, OurCrowd)),
        ("another process", (OtherProcess, OtherProcess)),
    ):
        bench.say(f"round {number + 1}, {case}")
        lock = f"workers-{secrets.token_hex(4)}"
        crowds = [
            kind(server.url, lock, members, seconds, label)
            for kind, label in zip(kinds, ("a-", "b-"), strict=True)
        ]
        async with contextlib.AsyncExitStack() as stack:
            for crowd in crowds:
                await stack.enter_async_context(crowd.running())
            await _formed(server, *crowds)
            start = time.monotonic()
            await asyncio.sleep(bench.size(2.0, 0.4))
            end = time.monotonic()
        turns = sorted((turn for crowd in crowds for turn in crowd.turns), key=lambda turn: turn[1])
        gaps = [
            max(after[1] - before[2], 0)
            for before, after in pairwise(turns)
            if before[0][:2] != after[0][:2] and start <= after[1] <= end
        ]
        _note_gaps(bench, case, "lock_interceptor", gaps or [end - start], BETWEEN)


async def _through_temporal(bench: Bench, servers: DevServers, number: int) -> None:
    settings = settings_for(servers.redis.url, application_name=f"bench-{secrets.token_hex(4)}")
    count, seconds = bench.size((100, 0.2), (6, 0.05))
    for way in bench.order(("interceptor", "plugin"), number):
        case = f"{way}, limit {LIMIT}, bodies of {seconds * 1000:g} ms"
        bench.say(f"round {number + 1}, {case}")
        await _workflows(bench, servers, settings, case, way, count=count, seconds=seconds, limit=LIMIT)
    count, seconds = bench.size((60, 0.05), (4, 0.05))
    case = f"plugin, limit 1, bodies of {seconds * 1000:g} ms"
    bench.say(f"round {number + 1}, {case}")
    await _workflows(bench, servers, settings, case, "plugin", count=count, seconds=seconds, limit=1)
    if number == 0:  # it takes long, and is nearly the same each time
        bench.say(f"round {number + 1}, {case}, lock activities tried every second")
        await _polled(bench, servers, case, bench.size(20, 2), seconds)


async def _workflows(
    bench: Bench, servers: DevServers, settings: LockSettings, case: str, way: str, *,
    count: int, seconds: float, limit: int,
) -> None:  # fmt: skip
    plugin, locks = LockPlugin(settings), LockInterceptor(settings)
    client = await Client.connect(servers.temporal.address, plugins=[plugin] if way == "plugin" else [])
    name, queue = "work_of_three" if limit == LIMIT else "work_of_one", f"use-{secrets.token_hex(4)}"
    temporal_side.bodies.clear()
    async with worker(client, queue, locks if way == "interceptor" else None):
        handles = await _start(client, queue, Turn.run, [name, seconds], count)
        scheduled = time.monotonic()
        await asyncio.gather(*(handle.result() for handle in handles))
    await locks.close()
    _note_use(bench, case, "lock_interceptor", limit, scheduled)


async def _polled(bench: Bench, servers: DevServers, case: str, count: int, seconds: float) -> None:
    client = await Client.connect(servers.temporal.address)
    polled_lock.client = redis.asyncio.Redis.from_url(servers.redis.url, protocol=2)
    queue = f"polled-{secrets.token_hex(4)}"
    temporal_side.bodies.clear()
    async with worker(client, queue, None):
        handles = await _start(client, queue, PolledTurn.run, [queue, seconds, 1.0], count)
        scheduled = time.monotonic()
        await asyncio.gather(*(handle.result() for handle in handles))
    await polled_lock.client.aclose()
    _note_use(bench, case, "lock activities, every second", 1, scheduled)


async def _start(client: Client, queue: str, run: object, args: list[object], count: int) -> list:
    at_once = asyncio.Semaphore(20)

    async def one(number: int):
        async with at_once:
            return await client.start_workflow(run, args=args, id=f"{queue}-{number}", task_queue=queue)

    return await asyncio.gather(*map(one, range(count)))


def _note_use(bench: Bench, case: str, who: str, limit: int, scheduled: float) -> None:
    """From when all are scheduled and a tenth is done until the last tenth begins: a formed line."""
    begins, ends = (sorted(times) for times in zip(*temporal_side.bodies, strict=True))
    tenth = max(len(begins) // 10, 1)
    start, end = max(ends[tenth - 1], scheduled), begins[-tenth]
    if start >= end:
        bench.results.remark(f"{case}, {who}: over before a line had formed")
        start = ends[0]
    use = slot_use(temporal_side.bodies, limit, start, end)
    bench.add(f"slot use{THROUGH}", case, who, "%", use.used * 100)
    if use.gaps:
        _note_gaps(bench, case, who, use.gaps, THROUGH)
