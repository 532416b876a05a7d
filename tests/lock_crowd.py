"""Many locks, put into Redis as the scripts would leave them but much faster."""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import redis

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.store import LockId

_STEP = 1000
_MINUTES = 60_000


@dataclass(frozen=True)
class Crowd:
    """One lock with this many holders, hot and parked waiters."""

    lock: LockId
    held: int = 1
    hot: int = 0
    parked: int = 0
    limit: int | None = None
    waits_since: float | None = None
    """When the first in line was scheduled, in seconds since 1970; the others came a second later each."""
    extra: dict[str, float] = field(default_factory=dict)

    def members(self, now_ms: int) -> Iterator[tuple[str, float]]:
        """What stands in the lock's sorted set."""
        for slot in range(self.held):
            token = (now_ms - 5000 * (slot + 1)) * 1000
            yield f"h{slot}", now_ms + 10 * _MINUTES
            yield f"t{slot}", token
            yield f"s{slot}", slot
            yield f'i{slot}|{{"workflow":"holder-{slot}"}}', token + 4e15
        for number in range(self.hot + self.parked):
            ticket, who = 3e11 + number + 1, f"w{number}"
            since = {} if self.waits_since is None else {"since": self.waits_since + number}
            yield f"k{who}", -1e14 - (now_ms + 10 * _MINUTES)
            yield f"i{who}|{json.dumps({'workflow': f'waiter-{number}', **since})}", ticket + 2e13
            if number < self.hot:
                yield f"q{who}", ticket
                yield f"p{who}", -(now_ms + 10 * _MINUTES)
            else:
                yield f"c{who}", ticket + 1e13
        if self.hot + self.parked:
            yield "#q", -4e15 - (self.hot + self.parked)
        yield "#n", -4e15 - now_ms
        if self.limit is not None:
            yield "#l", -4e15 - self.limit
        yield from self.extra.items()


def put(server: RedisServer, crowds: Iterable[Crowd], *, prefix: str = "lock") -> None:
    """Write them into a server, as many at once as it takes well."""
    now_ms = int(time.time() * 1000)
    with redis.Redis(host=HOST, port=server.port, protocol=2) as client:
        pipeline, waiting = client.pipeline(transaction=False), 0
        for crowd in crowds:
            pipeline.zadd(lock_key(prefix, crowd.lock), dict(crowd.members(now_ms)))
            waiting += 1
            if waiting == _STEP:
                pipeline.execute()
                waiting = 0
        pipeline.execute()
