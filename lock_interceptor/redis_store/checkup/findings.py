"""What a check-up finds, and the servers that it asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, ResponseError

from lock_interceptor.redis_store.errors import translated

Level = Literal["ok", "warning", "problem", "unknown"]
"""All is well; it works, but; it does not work; it could not be checked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    check: str
    """What was checked; the names are API."""
    level: Level
    message: str
    remedy: str = ""
    where: str = ""
    """Which server, if it is about one."""


@dataclass(slots=True)
class Report:
    """All findings, in the order of the checks."""

    findings: list[Finding] = field(default_factory=list)
    reached: bool = True
    """Whether Redis could be talked to, be it only to be refused."""

    @property
    def status(self) -> Literal["ok", "problems", "unreachable"]:
        """In a word."""
        if not self.reached:
            return "unreachable"
        return "problems" if any(each.level == "problem" for each in self.findings) else "ok"


class Server:
    """One server, asked for what it says itself, undigested."""

    def __init__(self, where: str, client: Redis, timeout: float) -> None:
        self.where = where
        self._client = client
        self._timeout = timeout
        client.response_callbacks.clear()

    def found(self, check: str, level: Level, message: str, remedy: str = "") -> Finding:
        """A finding about this server."""
        return Finding(check, level, message, remedy, self.where)

    async def ask(self, *words: str | int) -> Any:
        """Send a command.

        Raises:
            LockStoreUnavailable: no answer.
            LockConfigurationError: the server refuses.
        """
        with translated(self.where):
            async with asyncio.timeout(self._timeout):
                return await cast("Any", self._client).execute_command(*words)

    async def ask_if_allowed(self, *words: str | int) -> Any:
        """The same, but None where the user has no right to it; hosted servers may not have it at all."""
        with translated(self.where):
            async with asyncio.timeout(self._timeout):
                try:
                    return await cast("Any", self._client).execute_command(*words)
                except ResponseError as error:
                    if isinstance(error, NoPermissionError) or "unknown command" in str(error):
                        return None
                    raise

    async def try_all(self, commands: list[tuple[str | int, ...]]) -> list[Any]:
        """Send commands, and return their answers with errors among them."""
        pipeline: Any = self._client.pipeline(transaction=False)
        for words in commands:
            pipeline.execute_command(*words)
        with translated(self.where):
            async with asyncio.timeout(self._timeout):
                answers: list[Any] = await pipeline.execute(raise_on_error=False)
                return answers

    @property
    def database(self) -> int:
        """The number of the database that is used."""
        return int(self._client.connection_pool.connection_kwargs.get("db") or 0)

    @property
    def client(self) -> Redis:
        """For subscribing."""
        return self._client


def pairs(answer: list[Any] | None) -> Mapping[str, str]:
    """An answer that lists names and values in turn."""
    return {} if answer is None else dict(zip(answer[::2], answer[1::2], strict=True))


def info_fields(text: str | None) -> Mapping[str, str] | None:
    """What ``INFO`` says; None if it was not allowed."""
    if text is None:
        return None
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and line[0] != "#")
