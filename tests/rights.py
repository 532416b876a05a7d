"""The least that a Redis user needs, by profile; docs/deploying.md quotes it, and tests prove it."""

from lock_interceptor.settings import Durability

SENT = ("evalsha", "eval", "publish", "subscribe", "unsubscribe", "ping")
"""Commands that a client sends; ``PUBLISH`` and ``PING`` tell whether wake-ups can work."""
IN_SCRIPTS = (
    "time",
    "info",
    "zadd",
    "zcount",
    "zrangebyscore",
    "zrem",
    "zremrangebyscore",
    "zmscore",
    "pexpire",
    "pttl",
    "publish",
)
"""Commands that the scripts call: the server asks for the right to each of them too."""
FOR_A_DATABASE = ("select",)
"""Needed for a ``REDIS_DB`` other than 0."""
WITH_REPLICAS = ("wait",)
"""Needed unless ``LOCK_DURABILITY`` is ``primary``, which it is by default on a single server only."""
IN_CLUSTER = ("cluster|slots", "command")
"""What redis-py asks to find its way in a Cluster."""
IN_STRICT_CLUSTER = ("cluster|nodes",)
"""How many replicas a primary has, those that are away included: only the nodes themselves know."""
ON_SENTINEL = ("sentinel|masters",)
"""What redis-py asks a Sentinel, for ``REDIS_SENTINEL_USERNAME``."""

PROFILES: tuple[Durability, ...] = ("primary", "failover", "strict")


def least_commands(profile: Durability, *, cluster: bool = False, database: bool = False) -> list[str]:
    """The commands that a profile needs, in order."""
    more = [
        *(WITH_REPLICAS if profile != "primary" else ()),
        *(IN_CLUSTER if cluster else ()),
        *(IN_STRICT_CLUSTER if cluster and profile == "strict" else ()),
        *(FOR_A_DATABASE if database else ()),
    ]
    return sorted({*SENT, *IN_SCRIPTS, *more})


def least_rights(
    prefix: str = "lock", *, profile: Durability = "strict", cluster: bool = False, database: bool = True
) -> list[str]:
    """The rules for ``ACL SETUSER``, but for the password; by default for every profile and database.

    redis-py also introduces itself with ``CLIENT SETINFO``; it does not mind being denied that.
    """
    commands = least_commands(profile, cluster=cluster, database=database)
    return ["on", f"~{prefix}:*", f"&{prefix}:*", "-@all", *(f"+{name}" for name in commands)]


def sentinel_rights() -> list[str]:
    """The rules for the user at the Sentinels, but for the password."""
    return ["on", "-@all", *(f"+{name}" for name in ON_SENTINEL)]
