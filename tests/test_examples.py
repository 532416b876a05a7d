"""Every example runs as it stands."""

import asyncio
import os
import re
import sys
from pathlib import Path
from uuid import uuid4

from docs_run import ended_well
from servers import SentinelSet

from lock_interceptor.dev import RedisServer, TemporalServer

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


async def run_file(path: Path, *options: str, **environment: str) -> str:
    """Run a Python file as a user would, with options for Python, and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *options,
        str(path),
        env=os.environ | {"APPLICATION_NAME": str(uuid4())} | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert ended_well(process.returncode or 0), (out + err).decode()
    return out.decode()


def test_every_example_has_a_test() -> None:
    """An example that no test runs would rot."""
    tested = set(re.findall(r'EXAMPLES / "(\w+\.py)"', Path(__file__).read_text("utf-8")))

    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


async def test_api_limit_per_tenant(temporal_server: TemporalServer, valkey: RedisServer) -> None:
    """Each tenant has its own limit, and it is used to the full."""
    printed = await run_file(
        EXAMPLES / "api_limit_per_tenant.py", TEMPORAL_ADDRESS=temporal_server.address, REDIS_URL=valkey.url
    )

    assert "18 calls done" in printed
    assert [
        f"{tenant}: at most 2 at once" for tenant in ("acme", "globex", "initech")
    ] == printed.splitlines()[-3:]


async def test_connection_mutex(temporal_server: TemporalServer, valkey: RedisServer) -> None:
    """Waiters take turns, and who does not want to wait is refused with the reason."""
    printed = await run_file(
        EXAMPLES / "connection_mutex.py", TEMPORAL_ADDRESS=temporal_server.address, REDIS_URL=valkey.url
    )

    assert "schema change refused: LockBusy: lock connection[warehouse] is not free: 1 of 1 held" in printed
    assert "4 tables loaded, one at a time" in printed


async def test_fenced_thread(temporal_server: TemporalServer, valkey: RedisServer) -> None:
    """A late writer is refused by its token."""
    printed = await run_file(
        EXAMPLES / "fenced_thread.py", TEMPORAL_ADDRESS=temporal_server.address, REDIS_URL=valkey.url
    )

    assert "balance 80 after 8 bookings; a late writer was refused" in printed


async def test_sentinel(temporal_server: TemporalServer) -> None:
    """The same activity works on Sentinel, and holders have seats of their own."""
    with SentinelSet() as sentinels:
        printed = await run_file(
            EXAMPLES / "sentinel.py",
            TEMPORAL_ADDRESS=temporal_server.address,
            REDIS_SENTINEL_HOSTS=sentinels.sentinel_hosts,
            REDIS_SENTINEL_SERVICE=sentinels.service,
        )

    assert {line.split()[0] for line in printed.splitlines() if "with seat" in line} == {
        "opening",
        "chase",
        "ending",
    }


async def test_tests_of_an_activity(temporal_server: TemporalServer) -> None:
    """The tests that users copy for their own activities pass."""
    printed = await run_file(
        EXAMPLES / "test_my_activity.py",
        *("-m", "pytest", "-p", "no:cacheprovider"),
        TEMPORAL_ADDRESS=temporal_server.address,
    )

    assert "7 passed" in printed
