"""The story of docs/start.md happens as it is told: each command in order, with the output that is shown."""

import asyncio
import contextlib
import os
import re
import shlex
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from docs_blocks import DOCS, Block, blocks
from docs_run import ended_well, is_program
from pydantic import SecretStr
from stage import until

from lock_interceptor import LockSettings, RedisLockStore
from lock_interceptor.dev import DevServers, RedisServer, TemporalServer
from lock_interceptor.store import LockId

PAGE = blocks(DOCS / "start.md")
COMMAND = f"{shlex.quote(sys.executable)} -m lock_interceptor"


def told(text: str) -> str:
    """Text without what differs from run to run: numbers, names of machines, and where lines are broken."""
    text = re.sub(r"\d+@\S+", "somebody", text)
    text = re.sub(r"\d+ min( \d+ s)?|\d+(\.\d+)? s\b", "some time", text)
    return " ".join(re.sub(r"\d+", "0", text).replace("─", " ").split())


class Reader:
    """Somebody who does what the page says, in a directory of their own."""

    def __init__(self, folder: Path, servers: DevServers) -> None:
        self._folder = folder
        # the page is told with leases of 30 s; shorter ones make the same story shorter
        inherited = {name: value for name, value in os.environ.items() if name != "APPLICATION_NAME"}
        self._environment = {**inherited, **servers.environment(), "LOCK_LEASE_SECONDS": "3"}

    async def starts(self, line: str) -> Process:
        """Begin a command line."""
        line = line.replace("lock-interceptor ", f"{COMMAND} ", 1)
        line = re.sub(r"^python ", f"exec {shlex.quote(sys.executable)} ", line)
        return await asyncio.create_subprocess_shell(
            line, cwd=self._folder, env=self._environment, stdout=PIPE, stderr=asyncio.subprocess.DEVNULL
        )

    async def runs(self, line: str) -> str:
        """Run a command line, and return what it printed."""
        process = await self.starts(line)
        out, _ = await process.communicate()
        status = process.returncode
        assert status == 0 or (status and line.startswith("python ") and ended_well(status)), line
        return out.decode()

    @contextlib.asynccontextmanager
    async def in_another_terminal(self, *lines: str) -> AsyncIterator[list[Process]]:
        """Have commands run meanwhile; the first is ended at last, if it does not end by itself."""
        processes = [await self.starts(line) for line in lines]
        try:
            yield processes
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()

    async def until_jammed(self, waiting: int) -> int:
        """Wait until order 13 holds the lock and so many wait for it; returns the holder's token."""
        store = RedisLockStore(LockSettings(redis_url=SecretStr(self._environment["REDIS_URL"])))

        async def jammed() -> int | None:
            state = await store.inspect(LockId("default", "robot", "north"))
            stuck = [holder.token for holder in state.holders if holder.party.workflow == "order-13"]
            return stuck[0] if stuck and state.waiting == waiting else None

        try:
            token: int = await until(jammed, f"order 13 in the way of {waiting}", timeout=60)
        finally:
            await store.close()
        return token


def block_with(text: str, kind: str) -> Block:
    """The one block of the page that has this in it."""
    (found,) = (block for block in PAGE if text in block.text and block.kind == kind)
    return found


def lines_of(block: Block) -> list[str]:
    """Lines in any order: those who wait come in the order in which they came."""
    return sorted(map(told, block.text.splitlines()))


@pytest.mark.timeout(300)  # a dozen processes, one after the other
async def test_the_story_of_the_first_page(tmp_path: Path) -> None:
    """A reader ships three orders, meets the jam, finds who causes it, clears it, and all are shipped."""
    (program,) = (block for block in PAGE if is_program(block))
    (tmp_path / "picking.py").write_text(program.text, "utf-8")
    recorded = [block.text.partition("\n") for block in PAGE if block.kind == "console"]
    recorded_lines = [(typed.removeprefix("$ "), output) for typed, _, output in recorded]
    with DevServers(TemporalServer(headless=True), RedisServer()) as servers:
        reader = Reader(tmp_path, servers)
        async with reader.in_another_terminal("python picking.py") as (worker,):
            assert worker.stdout is not None
            while b"ready" not in await worker.stdout.readline():
                pass
            jam = [line.removesuffix(" &") for line in block_with("sleep 4", "sh").text.splitlines()]
            typed, output = recorded_lines[0]
            assert told(await reader.runs(typed)) == told(output)

            async with reader.in_another_terminal(jam[0]) as (stuck,):
                await reader.until_jammed(0)
                async with reader.in_another_terminal(jam[2]) as (others,):
                    token = await reader.until_jammed(3)
                    for typed, output in recorded_lines[1:-1]:
                        ours = re.sub(r"--token \d+", f"--token {token}", typed)
                        assert told(await reader.runs(ours)) == told(output), typed
                    shipped, _ = await others.communicate()
                    assert sorted(map(told, shipped.decode().splitlines())) == lines_of(
                        block_with("order 14 picked", "text")
                    )
                last, _ = await stuck.communicate()
                assert told(last.decode()) == told(block_with("order 13 picked", "text").text)

            typed, output = recorded_lines[-1]
            assert told(await reader.runs(typed)) == told(output)
