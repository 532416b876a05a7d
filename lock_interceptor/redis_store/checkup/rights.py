"""Whether the Redis user may do what locks need: each command is tried, in a way that changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from redis.exceptions import NoPermissionError, RedisError

from lock_interceptor.redis_store.checkup.findings import Finding, Server
from lock_interceptor.redis_store.durability import Confirmations
from lock_interceptor.redis_store.keys import lock_key, wake_channel
from lock_interceptor.settings import LockSettings
from lock_interceptor.store import LockId

Words = tuple[str | int, ...]
WITHOUT = {
    "info": "a failover or restart is not noticed, and there is no grace after it",
    "ping": "wake-ups end after some time, and waiters find out by polling",
    "unsubscribe": "wake-ups end after some time, and waiters find out by polling",
}
"""Commands without which locks are kept all the same, and what is missing then."""


def needed_commands(settings: LockSettings, *, database: bool) -> set[str]:
    """The commands that a worker with these settings sends, or lets its scripts call."""
    profile = Confirmations.by_settings(settings, "").profile
    return {
        *_ALWAYS,
        *(["wait"] if profile != "primary" else []),
        *(["cluster|slots", "command"] if settings.redis_cluster else []),
        *(["cluster|nodes"] if settings.redis_cluster and profile == "strict" else []),
        *(["select"] if database else []),
    }


async def check_rights(server: Server, settings: LockSettings) -> list[Finding]:
    """Find all that is missing at once, with the rule that would grant it.

    Raises:
        LockStoreUnavailable: no answer.
    """
    missing = await _missing(server, settings)
    listing = "scan" in missing
    missing.discard("scan")
    optional = {command: missing_effect for command, missing_effect in WITHOUT.items() if command in missing}
    profile = Confirmations.by_settings(settings, "").profile
    if profile == "strict" and not Confirmations.by_settings(settings, "").replicated:
        optional.pop("info", None)
    required = missing - optional.keys()
    findings = []
    if required:
        findings.append(
            server.found(
                "rights",
                "problem",
                f"the Redis user lacks what a lock needs with LOCK_DURABILITY {profile}: {_named(required)}",
                f"ACL SETUSER <user> {_rule(required, settings)}",
            )
        )
    for command, effect in optional.items():
        findings.append(
            server.found(
                "rights", "warning", f"no right to {command}: {effect}", f"ACL SETUSER <user> +{command}"
            )
        )
    if not findings:
        more = " (for lock-interceptor list and watch it would need +scan)" if listing else ""
        findings.append(server.found("rights", "ok", f"the Redis user may do all that locks need{more}"))
    return findings


async def _missing(server: Server, settings: LockSettings) -> set[str]:
    """Commands, and "keys" or "channels" where it is these that are not allowed."""
    # users' names are never empty, and a store's check has no key
    key = lock_key(settings.key_prefix, LockId(settings.application_name, "", "doctor"))
    channel = wake_channel(key)
    needed = needed_commands(settings, database=server.database > 0)
    tries = _tries(key, channel, server.database)
    asked = [
        _Try(command, words) for command, words in tries.items() if command in needed or command == "scan"
    ]
    answers = await server.try_all([each.words for each in asked])
    missing = {
        _denied(each.command, answer)
        for each, answer in zip(asked, answers, strict=True)
        if isinstance(answer, NoPermissionError)
    }
    return missing | await _missing_to_listen(server, channel)


async def _missing_to_listen(server: Server, channel: str) -> set[str]:
    missing = set()
    pubsub = server.client.pubsub()
    try:
        for command in ("subscribe", "unsubscribe"):
            try:
                async with asyncio.timeout(2):
                    await getattr(pubsub, command)(channel)
                    await pubsub.get_message(timeout=2)
            except NoPermissionError as denial:
                missing.add(_denied(command, denial))
                if command == "subscribe":
                    break
            except (RedisError, OSError, TimeoutError):
                break
    finally:
        await pubsub.aclose()  # type: ignore[no-untyped-call]  # redis-py
    return missing


@dataclass(frozen=True, slots=True)
class _Try:
    command: str
    words: Words


def _tries(key: str, channel: str, database: int) -> dict[str, Words]:
    """How each command is tried, on a key that nobody has."""
    return {
        "ping": ("PING",),
        "time": ("TIME",),
        "info": ("INFO", "replication"),
        "evalsha": ("EVALSHA", "0" * 40, 1, key),
        "eval": ("EVAL", "return 1", 1, key),
        "zadd": ("ZADD", key, "XX", 1, "?"),
        "zcount": ("ZCOUNT", key, 0, 0),
        "zrangebyscore": ("ZRANGEBYSCORE", key, 0, 0, "LIMIT", 0, 1),
        "zrem": ("ZREM", key, "?"),
        "zremrangebyscore": ("ZREMRANGEBYSCORE", key, 0, 0),
        "zmscore": ("ZMSCORE", key, "?"),
        "pexpire": ("PEXPIRE", key, 1),
        "pttl": ("PTTL", key),
        "publish": ("PUBLISH", channel, ""),
        "wait": ("WAIT", 0, 1),
        "cluster|slots": ("CLUSTER", "SLOTS"),
        "cluster|nodes": ("CLUSTER", "NODES"),
        "command": ("COMMAND", "COUNT"),
        "select": ("SELECT", database),
        "scan": ("SCAN", 0, "COUNT", 1),
    }


_ALWAYS = (
    *("evalsha", "eval", "publish", "subscribe", "unsubscribe", "ping", "time", "info", "zadd"),
    *("zcount", "zrangebyscore", "zrem", "zremrangebyscore", "zmscore", "pexpire", "pttl"),
)


def _denied(command: str, denial: NoPermissionError) -> str:
    said = str(denial).lower()
    if "to run" in said:
        return command
    return "channels" if "channel" in said else "keys" if "key" in said else command


def _named(missing: set[str]) -> str:
    return ", ".join(sorted(each if each in ("keys", "channels") else each.upper() for each in missing))


def _rule(missing: set[str], settings: LockSettings) -> str:
    patterns = {"keys": f"~{settings.key_prefix}:*", "channels": f"&{settings.key_prefix}:*"}
    return " ".join(sorted(patterns.get(each, f"+{each}") for each in missing))
