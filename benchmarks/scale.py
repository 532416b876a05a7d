"""Long lines, many keys, many leases: what they cost the server, and whom."""

import asyncio
import time
from datetime import timedelta
from functools import partial
from typing import Any

import redis
from contestants import LEASE, new_claim, settings_for
from measuring import Bench, percentile, until
from redis_side import Looker
from waiters import Line

from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.store import Claim, LockId, Queueing

OURS = "lock_interceptor"
PATIENT = Queueing(presence=timedelta(hours=1), keep=timedelta(hours=2))
AT_ONCE = 16


async def measure(bench: Bench) -> None:
    with RedisServer() as server:
        await _lines(bench, server)
    with RedisServer() as server:
        await _keys(bench, server)
    await _waiting_minute(bench)
    await _renewals(bench)


async def _gather(calls: list[Any]) -> None:
    """A few at a time."""
    todo = iter(calls)

    async def work() -> None:
        for call in todo:
            await call()

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def _lines(bench: Bench, server: RedisServer) -> None:
    store, looker = RedisLockStore(settings_for(server.url)), Looker(server.url)
    lengths = bench.size((10, 100, 1_000, 10_000, 20_000), (3, 30))
    last: dict[int, Claim] = {}
    for length in lengths:
        bench.say(f"a line of {length:,}")
        before = looker.used().memory
        claims = [new_claim(f"line-{length}") for _ in range(length + 1)]
        await store.acquire(claims[0], lease=timedelta(hours=1))
        await _gather(
            [lambda claim=claim: store.acquire(claim, lease=LEASE, queueing=PATIENT) for claim in claims[1:]]
        )
        last[length] = claims[-1]
        if length == lengths[-1]:
            bench.add(
                "memory", f"a waiter, of {length:,}", OURS, "bytes", (looker.used().memory - before) / length
            )
    await _holders(bench, store, looker)
    times = bench.size(400, 10)
    for number in range(bench.first_round, bench.rounds):
        found = {}
        for length in bench.order(lengths, number):
            bench.say(f"round {number + 1}, {length:,} waiting")
            before = looker.used().cpu
            ask = partial(store.acquire, last[length], lease=LEASE, queueing=PATIENT)
            took = await _timed(times, ask)
            cpu = (looker.used().cpu - before) / times
            beside = await _timed(times, lambda: _pair(store, "unrelated"))
            crowded = await _next_to(store, last[length], times)
            found[length] = (took, cpu, beside, crowded)
        for length in lengths if number >= 0 else ():
            took, cpu, beside, crowded = found[length]
            case = f"{length:,} waiting"
            bench.add("p50 of an acquire", case, OURS, "ms", percentile(took, 0.5) * 1000)
            bench.add("p99 of an acquire", case, OURS, "ms", percentile(took, 0.99) * 1000)
            bench.add("Redis CPU of an acquire", case, OURS, "µs", cpu * 1e6)
            bench.add("p50 of a pair on an unrelated lock", case, OURS, "ms", percentile(beside, 0.5) * 1000)
            bench.add(
                "p50 of the same while the line asks", case, OURS, "ms", percentile(crowded, 0.5) * 1000
            )
    looker.close()
    await store.close()


async def _holders(bench: Bench, store: RedisLockStore, looker: Looker) -> None:
    holders = bench.size(10_000, 30)
    bench.say(f"{holders:,} holders")
    before = looker.used().memory
    claims = [new_claim("held", limit=holders) for _ in range(holders)]
    await _gather([lambda claim=claim: store.acquire(claim, lease=timedelta(hours=1)) for claim in claims])
    bench.add("memory", f"a holder, of {holders:,}", OURS, "bytes", (looker.used().memory - before) / holders)


async def _timed(times: int, call: Any) -> list[float]:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        await call()
        took.append(time.perf_counter() - began)
    return took


async def _pair(store: RedisLockStore, name: str) -> None:
    claim = new_claim(name)
    await store.acquire(claim, lease=LEASE)
    await store.release(claim)


async def _next_to(store: RedisLockStore, waiter: Claim, times: int) -> list[float]:
    """Pairs on an unrelated lock while a waiter of the line asks a thousand times a second."""

    async def ask() -> None:
        while True:
            await asyncio.sleep(0.001)
            await store.acquire(waiter, lease=LEASE, queueing=PATIENT)

    asking = asyncio.create_task(ask())
    took = await _timed(times, lambda: _pair(store, "unrelated"))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    return took


COPIES = """
for number = ARGV[1], ARGV[2] do
  redis.call('RESTORE', string.gsub(ARGV[3], 'NUMBER', string.format('%d', number)), ARGV[4], ARGV[5])
end
"""


async def _keys(bench: Bench, server: RedisServer) -> None:
    """Copies of one key that a lock has left behind, as many as there may be different locks."""
    store, looker = RedisLockStore(settings_for(server.url)), Looker(server.url)
    client: Any = redis.Redis.from_url(server.url, protocol=2, socket_timeout=60)
    await _pair(store, "idle-NUMBER")
    dump = client.dump(lock_key("lock", LockId("bench", "idle-NUMBER")))
    counts = bench.size((1, 10_000, 100_000, 1_000_000), (1, 100))
    there, times = 0, bench.size(500, 10)
    empty = looker.used().memory
    for count in counts:
        bench.say(f"{count:,} keys")
        while there < count:
            last = min(there + 10_000, count)
            name = lock_key("lock", LockId("bench", "idle-NUMBER"))
            client.eval(COPIES, 0, there + 1, last, name, 3_600_000, dump)
            there = last
        if count == counts[-1]:
            bench.add(
                "memory", f"an idle key, of {count:,}", OURS, "bytes", (looker.used().memory - empty) / count
            )
        await _timed(times, lambda: _pair(store, "among-many"))
        for _ in range(bench.rounds):
            before = looker.used().cpu
            took = await _timed(times, lambda: _pair(store, "among-many"))
            case = f"{count:,} key{'s' * (count > 1)}"
            bench.add("Redis CPU of a pair", case, OURS, "µs", (looker.used().cpu - before) / times * 1e6)
            bench.add("p50 of a pair", case, OURS, "ms", percentile(took, 0.5) * 1000)
            bench.add("p99 of a pair", case, OURS, "ms", percentile(took, 0.99) * 1000)
    client.close()
    looker.close()
    await store.close()


async def _waiting_minute(bench: Bench) -> None:
    """What waiters that nobody calls send, with the default settings."""
    waiters, seconds = bench.size((50, 20.0), (3, 0.5))
    bench.say(f"{waiters} waiters for {seconds:g} s")
    with RedisServer() as server:
        line, looker, done = Line(settings_for(server.url)), Looker(server.url), asyncio.Event()
        tasks = [asyncio.create_task(line.run(new_claim("minute"), done.wait)) for _ in range(waiters + 1)]
        await _all_in(line, "minute", waiters)
        before, began = looker.used(), time.monotonic()
        await asyncio.sleep(seconds)
        used, minutes = looker.used() - before, (time.monotonic() - began) / 60
        done.set()
        await asyncio.gather(*tasks)
        looker.close()
        await line.close()
    bench.add(
        "requests of a waiter in a minute",
        "default settings",
        OURS,
        "requests",
        used.trips / waiters / minutes,
    )


async def _all_in(line: Line, name: str, count: int) -> None:
    async def they_wait() -> bool:
        return (await line.store.inspect(LockId("bench", name), waiters=0)).waiting == count

    await until(they_wait, "a line")


async def _renewals(bench: Bench) -> None:
    """A thousand leases of the default length, held by one worker."""
    count, seconds = bench.size((1000, 20.0), (20, 1.0))
    bench.say(f"{count:,} leases for {seconds:g} s")
    with RedisServer() as server:
        lease = LEASE if not bench.quick else timedelta(seconds=1)
        line, looker, done = Line(settings_for(server.url, lease=lease)), Looker(server.url), asyncio.Event()
        held = 0

        async def body() -> None:
            nonlocal held
            held += 1
            await done.wait()

        tasks = [asyncio.create_task(line.run(new_claim(f"lease-{n}"), body)) for n in range(count)]

        async def all_held() -> bool:
            return held == count

        await until(all_held, "all leases")
        before, cpu, began = looker.used(), time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        used, took = looker.used() - before, time.monotonic() - began
        cpu = time.process_time() - cpu
        done.set()
        await asyncio.gather(*tasks)
        looker.close()
        await line.close()
    case, per_thousand = "1,000 leases of 30 s", 1000 / count / took
    bench.add("renewals", case, OURS, "/s", used.trips * per_thousand)
    bench.add("Redis CPU of renewals", case, OURS, "% of a core", used.cpu * per_thousand * 100)
    bench.add("worker CPU of renewals", case, OURS, "% of a core", cpu * per_thousand * 100)
