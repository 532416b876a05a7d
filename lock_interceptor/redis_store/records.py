"""What the scripts take and answer, as values: the only place that knows the records' forms."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from lock_interceptor.store import HolderState, LockState, Party, WaiterState

MAX_PARTY_BYTES = 600
_encode = json.JSONEncoder(separators=(",", ":")).encode


def duration(ms: int) -> timedelta | None:
    """Milliseconds as a duration; a negative number stands for None."""
    return None if ms < 0 else timedelta(milliseconds=ms)


def encode_party(party: Party) -> str:
    """As JSON without what goes without saying, and with long names cut so that the whole stays small."""
    said = ((name, getattr(party, name), each.default) for name, each in party.__dataclass_fields__.items())
    values = {name: value for name, value, default in said if value != default}
    text = _encode(values)
    room = MAX_PARTY_BYTES
    while len(text) > MAX_PARTY_BYTES and room > 8:
        room //= 2
        cut = {name: value[:room] if isinstance(value, str) else value for name, value in values.items()}
        text = _encode(cut)
    return text


def decode_party(text: str) -> Party:
    """Best effort: another version may have written it."""
    try:
        values = json.loads(text)
        return Party(**{name: values[name] for name in Party.__dataclass_fields__ if name in values})
    except (ValueError, TypeError):
        return Party()


def decode_holder(record: list[Any], now: int) -> HolderState:
    """A holder as ``common.lua`` describes it."""
    owner, token, slot, expiry, who = record
    return HolderState(
        owner=owner,
        token=token,
        slot=slot,
        lease_left=timedelta(milliseconds=expiry - now),
        held_for=timedelta(milliseconds=max(now - token // 1000, 0)),
        party=decode_party(who),
    )


def decode_state(answer: list[Any]) -> LockState:
    """What ``inspect.lua`` answers."""
    now, waiting, holders, line = answer
    return LockState(
        holders=tuple(decode_holder(holder, now) for holder in sorted(holders, key=lambda holder: holder[2])),
        waiters=tuple(
            WaiterState(waiter=waiter, present=bool(present), party=decode_party(who))
            for waiter, present, who in line
        ),
        waiting=waiting,
    )


def waits_since(text: str) -> float | None:
    """When whoever this describes was scheduled, in seconds since 1970; None if it does not say."""
    try:
        since = json.loads(text)["since"]
    except (ValueError, TypeError, KeyError):
        return None
    return float(since) if isinstance(since, int | float) and since > 0 else None
