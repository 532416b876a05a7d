"""What has to be on replicas before it counts, by profile (``LOCK_DURABILITY``).

primary   nothing: what the primary says counts
failover  a grant waits for one replica; if none confirms it counts all the same, with a warning
strict    a grant and a renewal count only when all replicas have confirmed them
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import structlog
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from lock_interceptor.errors import LockStoreUnavailable
from lock_interceptor.settings import Durability, LockSettings

log = structlog.get_logger("lock_interceptor")


@dataclass(slots=True)
class Confirmations:
    """How many replicas have to confirm what."""

    profile: Durability
    connected: int | None = None
    """Replicas that were connected when last heard of."""
    most_connected: int = 0
    """Most that were at once: one that is missing now may be promoted all the same."""
    short: bool = False

    @classmethod
    def by_settings(cls, settings: LockSettings) -> Confirmations:
        """The profile that is set, or the one that suits the kind of Redis."""
        replicated = bool(settings.redis_sentinel_hosts) or settings.redis_cluster
        return cls(settings.durability or ("failover" if replicated else "primary"))

    @property
    def for_grants(self) -> int:
        """Replicas that have to confirm a grant."""
        return {"primary": 0, "failover": 1, "strict": max(self.most_connected, 1)}[self.profile]

    @property
    def for_renewals(self) -> int:
        """Replicas that have to confirm a renewal."""
        return self.for_grants if self.profile == "strict" else 0

    def to_wait_for(self, needed: int) -> int:
        """Replicas to wait for: there is no sense in waiting for one that is not there."""
        return needed if self.connected is None else min(needed, self.connected)

    def heard(self, connected: int) -> None:
        """Take note of how many replicas are connected; -1 if nobody knows."""
        self.connected = connected if connected >= 0 else None
        self.most_connected = max(self.most_connected, connected)

    def check(self, confirmed: int, needed: int, where: str) -> None:
        """Judge an answer by how many replicas have confirmed it.

        Raises:
            LockStoreUnavailable: too few have, and the profile is ``strict``.
        """
        if confirmed < needed and self.profile == "strict":
            raise LockStoreUnavailable(
                f"Redis at {where}: {confirmed} of {needed} replicas have confirmed it, and LOCK_DURABILITY "
                "is strict"
            )
        if confirmed < needed and not self.short:
            log.warning(
                "lock.not_replicated",
                redis=where,
                remedy="look at the replicas: a failover now would forget who holds locks",
            )
        self.short = confirmed < needed


async def send(
    client: Redis | RedisCluster, key: str, words: tuple[str | int, ...], *, replicas: int, wait_ms: int
) -> tuple[Any, int]:
    """Send a command, and learn how many replicas have it. Both on one connection, as WAIT needs."""
    if not replicas:
        return await cast("Any", client.execute_command(*words)), 0
    if isinstance(client, RedisCluster):
        pipeline: Any = client.pipeline()
        target = {"target_nodes": client.get_node_from_key(key)}
    else:
        pipeline, target = client.pipeline(transaction=False), {}
    pipeline.execute_command(*words)
    pipeline.execute_command("WAIT", replicas, wait_ms, **target)
    answer, confirmed = await pipeline.execute(raise_on_error=False)
    for result in (answer, confirmed):
        if isinstance(result, Exception):
            raise result
    return answer, confirmed
