"""Injects the faults of a soak's schedule: which does what, and which overlap."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import redis_troubles as troubles
from soak_faults import Faults
from soak_schedule import Burst, Strike

LATENCY = (0.02, 0.12)
"""Seconds, each way."""

Injection = Callable[[Faults, Strike], Awaitable[None]]


def _order(*words: object) -> Injection:
    return lambda faults, _: faults.order(" ".join(map(str, words)), *words)


def _net(how: Callable[[Any], object]) -> Injection:
    return lambda faults, strike: faults.break_net(strike, how)


def _trouble(provoke: troubles.Trouble) -> Injection:
    return lambda faults, strike: faults.trouble(strike, provoke)


def _of_worker(order: str) -> Injection:
    return lambda faults, strike: faults.trouble_worker(strike, order)


def _refuse(net: Any) -> None:
    net.refuse()
    net.cut()


INJECTIONS: dict[str, Injection] = {
    "worker killed": Faults.kill_worker,
    "worker stopped for a moment": Faults.stop_worker,
    "worker stopped for long": Faults.stop_worker,
    "keeper hangs for a moment": _of_worker("keeper hangs"),
    "keeper hangs for long": _of_worker("keeper hangs"),
    "keeper dies": _of_worker("keeper dies"),
    "keeper stays dead": _of_worker("keeper dies"),
    "log breaks": _of_worker("log breaks"),
    "limits and lease changed": Faults.change_version,
    "SCRIPT FLUSH": _order("SCRIPT", "FLUSH"),
    "CLIENT KILL normal": _order("CLIENT", "KILL", "TYPE", "normal"),
    "CLIENT KILL pubsub": _order("CLIENT", "KILL", "TYPE", "pubsub"),
    "DEL of a lock": Faults.delete,
    "FLUSHALL": _order("FLUSHALL"),
    "connections cut": _net(lambda net: net.cut()),
    "connections refused": _net(_refuse),
    "connections half-open": _net(lambda net: net.strand()),
    "requests lost": _net(lambda net: net.drop_requests()),
    "replies lost": _net(lambda net: net.drop_replies()),
    "replies torn": _net(lambda net: net.tear_next_replies(1000)),
    "latency": _net(lambda net: net.jitter(*LATENCY)),
    "black hole for a moment": _net(lambda net: net.black_hole()),
    "black hole for long": _net(lambda net: net.black_hole()),
    "server paused for a moment": Faults.pause,
    "server paused for long": Faults.pause,
    "server killed": Faults.kill_server,
    "server out of memory": _trouble(troubles.no_memory),
    "server read-only": _trouble(troubles.is_replica),
    "server busy": _trouble(troubles.busy),
    "server misses replicas": _trouble(troubles.too_few_replicas),
    "primary killed": Faults.fail_over,
    "primary paused for a moment": Faults.pause,
    "primary replaced on demand": Faults.replace,
    "primary paused for long": Faults.pause_primary,
    "replica paused": Faults.pause_replica,
    "Sentinel killed": Faults.kill_sentinel,
}
"""By the name of the kind."""


class Injector:
    """Injects the faults of one round."""

    def __init__(self, faults: Faults) -> None:
        self.injected: Counter[str] = Counter()
        """By kind."""
        self.current: list[str] = []
        """What is broken now."""
        self._faults = faults

    async def inject(self, burst: Burst) -> None:
        """Inject overlapping faults, and return when all are healed."""
        async with asyncio.TaskGroup() as strikes:
            for strike in burst.strikes:
                strikes.create_task(self._strike(strike), name=strike.kind.name)

    async def _strike(self, strike: Strike) -> None:
        if strike.kind.costs:
            self._faults.hang(on=True)
        await asyncio.sleep(strike.after)
        name = strike.kind.name
        self.current.append(name)
        try:
            await INJECTIONS[name](self._faults, strike)
        finally:
            self.current.remove(name)
            if strike.kind.costs:
                self._faults.hang(on=False)
        self.injected[name] += 1
