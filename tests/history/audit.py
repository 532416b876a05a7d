"""The audit: what the server did, told by the scripts themselves in test builds.

A test build differs from the script that users get in one place: a recorder stands before it. Production
scripts hold no trace of it.
"""

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lock_interceptor.redis_store.scripts import Script

MARKER = "\nlocal key = KEYS[1]\n"
"""The first statement of every script, before which the recorder goes."""
_LINE = re.compile(rb"^(\d+):.* lock-audit (\d+)/(\d+) (.*)\n", re.DOTALL)
_READ_ONLY = ("inspect",)


@dataclass(slots=True)
class Row:
    """One run of one script."""

    server: str
    """Which server's log it stands in."""
    process: str
    """Which of the server's lives, by its process id."""
    lock: str
    """The lock's key."""
    op: str
    ask: dict[str, Any]
    """What the client asked for: ``call`` (unique), ``owner``, ``waiter``, ``limit``, ``lease`` in ms, ..."""
    did: list[list[str]] = field(default_factory=list)
    """In order: ``+ member score``, ``- member``, ``! waiter woken``, ``ttl ms``."""
    before: int = 0
    """Records in the key before and after."""
    after: int = 0
    us: int | None = None
    """The server's clock, unless the script was told the time."""
    replid: str | None = None
    content: dict[str, float] | None = None
    """Everything that was in the key before, if this server may not have put it there."""
    foreign: str = ""
    """A command that went somewhere else than to the lock."""
    unknown: str = ""
    """A command that the recorder does not know."""
    error: str = ""
    at: float = 0.0
    """Earliest moment on the clock of the clients."""


def audited(script: Script) -> Script:
    """The test build of a script."""
    if script.name in _READ_ONLY:
        return script
    assert script.text.count(MARKER) == 1, script.name
    recorder = Path(__file__).with_name("recorder.lua").read_text().replace("@NAME@", script.name)
    text = script.text.replace(MARKER, f"\n{recorder}\nreturn audited(function(){MARKER}") + "\nend)\n"
    return Script(script.name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def auditing(load: Any) -> Any:
    """Like `scripts.load`, with test builds."""
    return functools.cache(lambda name: audited(load(name)))


def read_log(path: Path, server: str, start: int = 0) -> Iterator[Row]:
    """The rows in a server's log, from this offset on, in the order in which they happened."""
    parts: list[bytes] = []
    with path.open("rb") as log:
        log.seek(start)
        for line in log:
            if (found := _LINE.match(line)) is None:
                continue
            if found[2] == b"1":
                parts = []  # what a killed server did not end
            parts.append(found[4])
            if found[2] == found[3] and len(parts) == int(found[3]):
                text = b"".join(parts).decode(errors="surrogateescape")
                yield _parse(json.loads(text), server, found[1].decode())


def _parse(raw: dict[str, Any], server: str, process: str) -> Row:
    flat = iter(raw.get("all") or ())
    return Row(
        server=server,
        process=process,
        lock=raw["key"],
        op=raw["op"],
        ask=json.loads(raw["ask"]),
        did=list(raw["did"]),
        before=int(raw["before"]),
        after=int(raw["after"]),
        us=int(raw["us"]) if "us" in raw else None,
        replid=raw.get("replid"),
        content=dict(zip(flat, map(float, flat), strict=True)) if raw.get("all") else None,
        foreign=raw.get("foreign", ""),
        unknown=raw.get("unknown", ""),
        error=raw.get("error", ""),
    )


def in_order(logs: Iterable[list[Row]]) -> list[Row]:
    """The rows of several servers as one sequence: each server's own order, and its clock between servers."""
    filled = [rows for rows in logs if rows]
    if len(filled) < 2:
        return filled[0] if filled else []
    keyed = []
    for number, rows in enumerate(filled):
        latest = 0
        for place, row in enumerate(rows):
            latest = max(latest, row.us or 0)
            keyed.append((latest, number, place, row))
    keyed.sort(key=lambda each: each[:3])
    return [row for *_, row in keyed]
