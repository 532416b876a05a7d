"""Turns of the busiest and the idlest of many that want the same lock again and again."""

import asyncio
import secrets
from collections import Counter

from contestants import installed_peers
from measuring import Bench
from turns import Crowd, OurCrowd, PythonRedisLockCrowd, RedisPyCrowd

from lock_interceptor.dev import RedisServer


async def measure(bench: Bench) -> None:
    _, missing = installed_peers()
    kinds: list[type[Crowd]] = [OurCrowd, RedisPyCrowd]
    for text in missing:
        bench.results.remark(text)
    if not any("python-redis-lock" in text for text in missing):
        kinds.append(PythonRedisLockCrowd)
    with RedisServer() as server:
        for number in range(bench.rounds):
            for members in bench.size((2, 8, 24, 48), (3,)):
                for kind in bench.order(kinds, number):
                    bench.say(f"round {number + 1}, {members} clients, {kind.name}")
                    crowd = kind(server.url, f"fair-{secrets.token_hex(4)}", members, 0.005)
                    async with crowd.running():
                        await asyncio.sleep(bench.size(2.5, 0.4))
                    _note(bench, f"{members} clients", crowd)


def _note(bench: Bench, case: str, crowd: Crowd) -> None:
    counts = Counter({str(member): 0 for member in range(crowd.members)})
    counts.update(who for who, *_ in crowd.turns)
    most, least = max(counts.values()), min(counts.values())
    bench.add("turns of the busiest", case, crowd.name, "turns", most)
    bench.add("turns of the idlest", case, crowd.name, "turns", least)
    # who never had one counts as if he had had one
    bench.add("busiest / idlest", case, crowd.name, "times", most / max(least, 1))
