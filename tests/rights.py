"""The least that a Redis user needs; the README quotes it, and ``test_acl.py`` proves it."""

SENT = ("evalsha", "eval", "publish", "subscribe", "unsubscribe", "ping")
"""Commands that a client sends; ``PUBLISH`` and ``PING`` tell whether wake-ups can work."""
IN_SCRIPTS = (
    "time",
    "info",
    "exists",
    "zadd",
    "zcount",
    "zrangebyscore",
    "zrem",
    "zremrangebyscore",
    "zscore",
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
ON_SENTINEL = ("sentinel|masters",)
"""What redis-py asks a Sentinel, for ``REDIS_SENTINEL_USERNAME``."""


def least_rights(prefix: str = "lock", *, cluster: bool = False) -> list[str]:
    """The rules for ``ACL SETUSER``, but for the password.

    redis-py also introduces itself with ``CLIENT SETINFO``; it does not mind being denied that.
    """
    commands = sorted({*SENT, *IN_SCRIPTS, *FOR_A_DATABASE, *WITH_REPLICAS, *(IN_CLUSTER if cluster else ())})
    return ["on", f"~{prefix}:*", f"&{prefix}:*", "-@all", *(f"+{name}" for name in commands)]
