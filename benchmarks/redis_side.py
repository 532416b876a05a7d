"""What a Redis server says of itself: commands, bytes, CPU and memory. Asked by one plain client."""

from dataclasses import dataclass
from typing import Any, Self

import redis


@dataclass(frozen=True)
class Used:
    """Counters of a server at one moment, or the difference of two."""

    trips: float
    """Commands that clients have sent; INFO is not counted."""
    commands: float
    """All commands, those of scripts too."""
    bytes: float
    cpu: float
    """Seconds."""
    memory: float

    def __sub__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, name) - getattr(other, name) for name in self.__dataclass_fields__))


SCRIPTS = ("evalsha", "eval")
QUIET = ("info", "client|setinfo", "hello", "config|resetstat", "ping")
"""Commands of whoever looks, or of a connection being made."""


class Looker:
    """Looks at one server."""

    def __init__(self, url: str) -> None:
        self._client: Any = redis.Redis.from_url(url, protocol=2)

    def used(self) -> Used:
        info = self._client.info("everything")
        calls = {
            name.removeprefix("cmdstat_"): stats["calls"]
            for name, stats in info.items()
            if name.startswith("cmdstat_")
        }
        # the INFO in a script counts as a command, and ours are few
        commands = sum(count for name, count in calls.items() if name not in QUIET[1:])
        scripts = sum(calls.get(name, 0) for name in SCRIPTS)
        plain = sum(calls.get(name, 0) for name in ("subscribe", "unsubscribe", "set"))
        return Used(
            scripts + plain,
            commands,
            info["total_net_input_bytes"] + info["total_net_output_bytes"],
            info["used_cpu_user"] + info["used_cpu_sys"],
            info["used_memory"],
        )

    def close(self) -> None:
        self._client.close()
