"""Writes that are lost with their primary, and two primaries at once, with clients of both under load.

The README says what each profile promises then, and under which conditions. Where it promises nothing, an
overlap has to be seen, which shows that these tests would see one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import history
import pytest
from fault_load import Load, LoadWorker, load
from fault_rows import OVERLAPS, conclude, granted_by, replid, soon, under_load
from fault_servers import NEVER, SplitSentinelSet, alert, taken_over
from servers import info, matrix_binary
from topologies import in_sync

PATIENCE = 40.0
MIN_REPLICAS = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
LATER = 3000
"""Milliseconds: the lag, and the two seconds within which a primary notices that it misses its replicas."""


@dataclass(frozen=True)
class Sides:
    """Clients on both sides of what will be cut."""

    servers: SplitSentinelSet
    run: history.Run
    loaded: Load
    near: LoadWorker
    """Beside the first primary."""
    far: LoadWorker
    """Beside the replicas."""

    async def grants_by(self, server: object, count: int, since: int = 0) -> None:
        """Wait until this server has granted so often."""
        await self.loaded.until(
            lambda: granted_by(self.run, server) >= since + count, f"{count} grants", PATIENCE
        )

    async def hang(self) -> None:
        """Let somebody beside the first primary hold a lock until it is lost."""
        mark = self.loaded.mark()
        self.near.order("hang", 2 * PATIENCE)

        def held() -> bool:
            said = [
                what
                for process, _, _, what, *_ in self.loaded.progress(mark)
                if process == str(self.near.pid)
            ]
            return "hang" in said and "began" in said[said.index("hang") :]

        await self.loaded.until(held, "a lock that is held for long")

    async def promoted(self) -> None:
        """Wait until the Sentinels have agreed on another primary."""
        await taken_over(self.servers, self.servers.first)


@asynccontextmanager
async def both_sides(servers: SplitSentinelSet, run: history.Run, profile: str) -> AsyncIterator[Sides]:
    """Load on both sides; all replicas know all locks."""
    async with load(run, {**servers.near, "LOCK_DURABILITY": profile}, processes=1) as loaded:
        sides = Sides(servers, run, loaded, loaded.workers[0], loaded.start(**servers.far))
        await loaded.until_progress(workers=[sides.far])
        await under_load(loaded)
        await soon(lambda: in_sync(servers.first, 2, "faults"), "replicas in sync", PATIENCE)
        yield sides


async def test_lost_writes(tmp_path: Path) -> None:
    """Grants that no replica has heard of: their holders know it before anybody else has the lock."""
    with (
        SplitSentinelSet(down_after_ms=NEVER, binary=matrix_binary()) as servers,
        history.recording(tmp_path / "history", servers.first, *servers.replicas) as run,
    ):
        async with both_sides(servers, run, "failover") as sides:
            known = granted_by(run, servers.first)
            with run.fault("no replication"):
                servers.cut()
                await sides.grants_by(servers.first, 3, known)
                await sides.hang()
                with run.fault("SIGKILL of the primary"):
                    servers.first.kill()
                    alert(servers)
                    lost = granted_by(run, servers.first) - known
                    assert all(info(each, "replication")["role"] == "slave" for each in servers.replicas)
                    await sides.promoted()
                    await sides.loaded.until_progress(PATIENCE, workers=[sides.far])
                    await sides.near.kill()  # to it there is no primary
        conclude(
            run,
            f"Sentinel, {lost} grants lost with the primary",
            sides.loaded,
            at_least={"lost": 1, "histories begun anew": 3},
        )
        assert lost >= 3


@pytest.mark.parametrize(
    ("profile", "options", "down_after_ms"),
    [("primary", (), 500), ("failover", MIN_REPLICAS, LATER), ("strict", (), 500)],
)
async def test_a_split_brain(
    profile: str, options: tuple[str, ...], down_after_ms: int, tmp_path: Path
) -> None:
    """Two primaries grant at once in primary; in failover with min-replicas, and in strict, they do not."""
    with (
        SplitSentinelSet(*options, down_after_ms=down_after_ms, binary=matrix_binary()) as servers,
        history.recording(tmp_path / "history", servers.first, *servers.replicas) as run,
    ):
        before = replid(servers.first)
        async with both_sides(servers, run, profile) as sides:
            with run.fault("split brain"):
                servers.cut()
                await sides.promoted()
                assert info(servers.first, "replication")["role"] == "master"
                assert replid(servers.primary) != before
                if profile == "primary":
                    alone = granted_by(run, servers.first)
                    await sides.loaded.until_progress(PATIENCE, workers=[sides.near, sides.far])
                    assert granted_by(run, servers.first) > alone
                elif profile == "failover":
                    await sides.loaded.until_progress(PATIENCE, workers=[sides.far])
                else:
                    # neither side has all replicas
                    await sides.grants_by(servers.primary, 5)
                await sides.near.kill()
                await asyncio.to_thread(servers.heal)
            await sides.loaded.until_progress(PATIENCE)
        seen = {OVERLAPS: 1} if profile == "primary" else {}
        conclude(run, "Sentinel, split brain", sides.loaded, at_least=seen)
