"""What a lock costs that nobody else wants: locked activities against bare ones, and another scheme."""

import secrets
from dataclasses import dataclass

import polled_lock
import redis
from contestants import settings_for
from measuring import Bench
from redis_side import Looker, Used
from temporal_side import Burst, Course, run_burst, worker
from temporalio.client import Client

from lock_interceptor import LockInterceptor
from lock_interceptor.dev import DevServers, RedisServer, TemporalServer


@dataclass(frozen=True)
class Way:
    """A contestant."""

    who: str
    activity: str
    queue: str
    polled: bool = False


BARE, LOCKED = "bare", "locked"
WAYS = {
    "async": [
        Way("bare", "bare_async", BARE),
        Way("locked", "locked_async", LOCKED),
        Way("lock activities", "bare_async", BARE, polled=True),
    ],
    "sync": [Way("bare", "bare_sync", BARE), Way("locked", "locked_sync", LOCKED)],
}


async def measure(bench: Bench) -> None:
    with DevServers(TemporalServer(headless=True), RedisServer()) as servers:
        client = await Client.connect(servers.temporal.address)
        locks = LockInterceptor(settings_for(servers.redis.url))
        polled_lock.client = redis.asyncio.Redis.from_url(servers.redis.url, protocol=2)
        await locks.check()  # the server knows the scripts then, and does not count as asked twice
        looker = Looker(servers.redis.url)
        try:
            async with worker(client, BARE, None), worker(client, LOCKED, locks):
                for number in range(bench.first_round, bench.rounds):
                    await _round(bench, client, looker, number)
        finally:
            looker.close()
            await polled_lock.client.aclose()
            await locks.close()


async def _round(bench: Bench, client: Client, looker: Looker, number: int) -> None:
    for kind, ways in WAYS.items():
        for chains, length in bench.size(((1, 40), (50, 8)), ((1, 3), (3, 2))):
            case = f"{kind}, {chains} in parallel"
            for way in bench.order(ways, number):
                bench.say(f"round {number + 1}, {case}, {way.who}")
                burst = Burst(way.activity, chains, length, secrets.token_hex(4), way.polled)
                look = looker.used()
                nothing = looker.used() - look
                before = looker.used()
                course = await run_burst(client, way.queue, burst)
                used = looker.used() - before - nothing
                if number >= 0:
                    _note(bench, case, who=way.who, course=course, used=used, units=chains * length)


def _note(bench: Bench, case: str, *, who: str, course: Course, used: Used, units: int) -> None:
    bench.add("activities a second", case, who, "/s", course.rate)
    if who != "lock activities":  # which are several
        bench.add("p50 of an activity", case, who, "ms", course.p50 * 1000)
        bench.add("p99 of an activity", case, who, "ms", course.p99 * 1000)
    if case.endswith(" 1 in parallel"):
        bench.add("history events per activity", case, who, "events", course.events)
    if who != "bare":
        bench.add("round trips to Redis per activity", case, who, "trips", used.trips / units)
        bench.add("Redis commands per activity, in scripts too", case, who, "commands", used.commands / units)
        bench.add("bytes to and from Redis per activity", case, who, "bytes", used.bytes / units)
