"""How locks are named in Redis: the only place that builds or reads a key or a channel."""

from __future__ import annotations

import functools
import hashlib
from urllib.parse import quote, unquote

from lock_interceptor.store import LockId

SCHEMA = 1
"""Version of what is inside the keys; a change of it starts new keys beside the old ones."""
MAX_PART_BYTES = 200


def lock_key(prefix: str, lock: LockId) -> str:
    """``<prefix>:1:{<application>:<name>[:<key>]}``.

    Users' parts are percent-encoded, so no name can move the braces, which decide the Cluster slot, or
    reach another lock's key. The wake-up channel shares the braces.
    """
    parts = [lock.application, lock.name] if lock.key is None else [lock.application, lock.name, lock.key]
    return f"{prefix}:{SCHEMA}:{{{':'.join(map(_encode, parts))}}}"


def wake_channel(key: str) -> str:
    """Where ``release.lua`` tells waiters of the lock with this key to ask again."""
    return f"{key}:wake"


def key_pattern(prefix: str, application: str | None = None) -> str:
    """What ``SCAN`` is to look for: the locks of an application, or all. Encoded parts have no wildcards."""
    return f"{prefix}:{SCHEMA}:{{{'*' if application is None else _encode(application)}:*}}"


def read_key(prefix: str, key: str) -> LockId | None:
    """Which lock has this key; None if it is not a lock's.

    For people: what was too long for a key comes back cut, with its digest.
    """
    head = f"{prefix}:{SCHEMA}:{{"
    parts = [unquote(part) for part in key.removeprefix(head).removesuffix("}").split(":")]
    ours = key.startswith(head) and key.endswith("}") and len(parts) in (2, 3)
    return LockId(*parts) if ours else None


@functools.lru_cache(maxsize=1024)  # a lock is asked for again and again, and quoting takes as long as a send
def _encode(part: str) -> str:
    """Unreserved characters stay readable; a long part ends in a digest of the whole.

    "~" marks the digest and is otherwise encoded, so no short name can look like a long one.
    """
    encoded = quote(part, safe="").replace("~", "%7E")
    if len(encoded) <= MAX_PART_BYTES:
        return encoded
    digest = hashlib.sha256(part.encode()).hexdigest()[:40]
    return f"{encoded[: MAX_PART_BYTES - 41]}~{digest}"
