"""What one primary says of itself: version, eviction, memory, persistence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lock_interceptor.redis_store.checkup.findings import Finding, Server

Fields = Mapping[str, str]
FULL = 0.9
"""Part of maxmemory from which on it is said that little is left."""


def check_version(server: Server, info: Fields) -> Iterator[Finding]:
    """Redis 7 or Valkey: the scripts need functions' flags and exact scores."""
    redis, valkey = info.get("redis_version", ""), info.get("valkey_version")
    name = f"Valkey {valkey}" if valkey else f"Redis {redis}"
    major = redis.partition(".")[0]
    if not valkey and major.isdigit() and int(major) < 7:
        remedy = "use Redis 7 or later, or Valkey"
        yield server.found("version", "problem", f"{name} cannot run the locks' scripts", remedy)
    else:
        yield server.found("version", "ok", name)


def check_eviction(server: Server, info: Fields) -> Iterator[Finding]:
    """A lock that is evicted while it is held is granted to another."""
    policy, most = info.get("maxmemory_policy"), int(info.get("maxmemory", 0))
    if policy is None:
        remedy = "see to it that maxmemory-policy is noeviction"
        yield server.found("eviction", "unknown", "the server does not tell its maxmemory-policy", remedy)
    elif policy == "noeviction":
        yield server.found("eviction", "ok", "maxmemory-policy is noeviction")
    else:
        level, now = ("problem", "") if most else ("warning", ", though nothing is while maxmemory is 0")
        yield server.found(
            "eviction",
            "problem" if level == "problem" else "warning",
            f"maxmemory-policy is {policy}: a lock that is held may be evicted, and granted to another{now}",
            "CONFIG SET maxmemory-policy noeviction, and in the configuration; give a cache its own server",
        )


def check_memory(server: Server, info: Fields) -> Iterator[Finding]:
    """Full memory grants no locks, though those that are held are renewed."""
    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if not most:
        yield server.found("memory", "ok", f"{_mb(used)} in use, without a limit")
    elif used > FULL * most:
        yield server.found(
            "memory",
            "problem" if used >= most else "warning",
            f"{_mb(used)} of {_mb(most)} in use: when it is full no lock is granted",
            "make room or raise maxmemory",
        )
    else:
        yield server.found("memory", "ok", f"{_mb(used)} of {_mb(most)} in use")


def check_persistence(server: Server, info: Fields, config: Fields) -> Iterator[Finding]:
    """What a restart forgets, others may be granted while bodies still run."""
    if info.get("rdb_last_bgsave_status", "ok") != "ok" or info.get("aof_last_write_status", "ok") != "ok":
        yield server.found(
            "persistence",
            "problem",
            "the last attempt to write to disk failed: Redis may refuse all writes (MISCONF)",
            "look at its log and at its disk",
        )
        return
    remedy = "CONFIG SET appendonly yes, and in the configuration"
    if info.get("aof_enabled") == "1":
        forgets = {
            "always": "nothing",
            "everysec": "at most the last second",
            "no": "what the system had not written yet",
        }.get(config.get("appendfsync", ""), "the last second, with appendfsync everysec")
        yield server.found("persistence", "ok", f"AOF is on: a restart forgets {forgets}")
    elif config.get("save") == "":
        message = "nothing is kept on disk: a restart forgets who holds locks"
        yield server.found("persistence", "warning", message, remedy)
    else:
        message = "AOF is off: a restart forgets the locks that were taken since the last snapshot"
        yield server.found("persistence", "warning", message, remedy)


def _mb(size: int) -> str:
    return f"{size / 2**20:,.0f} MB"
