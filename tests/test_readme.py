"""The README tells what is so: its code runs, and its tables are complete."""

import asyncio
import os
import re
import sys
import tomllib
from pathlib import Path
from uuid import uuid4

from docs_run import ended_well
from documented import section, variables
from quick_start import PRINTS, quick_start

import lock_interceptor
from lock_interceptor.dev import RedisServer, TemporalServer

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


async def test_quick_start_runs(temporal_server: TemporalServer, valkey: RedisServer, tmp_path: Path) -> None:
    """Whoever copies the quick start into a file gets what it promises."""
    file = tmp_path / "quickstart.py"
    file.write_text(quick_start(temporal_server.address), "utf-8")

    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(file),
        env=os.environ | {"REDIS_URL": valkey.url, "APPLICATION_NAME": str(uuid4())},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()

    assert ended_well(process.returncode or 0), err.decode()
    assert PRINTS in out.decode()


def test_settings_that_are_named_exist() -> None:
    """The short table has no variable that is not read; the reference has them all."""
    listed = set(re.findall(r"^\| `([A-Z_]+)` \|", section(README, "Settings"), re.MULTILINE))

    assert listed
    assert listed <= set().union(*variables().values())


def test_every_link_leads_somewhere() -> None:
    """Files that the README refers to exist, and so do its own headings."""
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", README) if not target.startswith("http")]
    headings = {
        f"#{title.lower().replace(' ', '-')}" for title in re.findall(r"^#+ (.+)$", README, re.MULTILINE)
    }

    assert targets
    for target in targets:
        assert target in headings or (ROOT / target.partition("#")[0]).exists(), target


def test_version_is_the_same_everywhere() -> None:
    """The package, its metadata and the newest entry of the changelog agree."""
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    newest = re.search(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)

    assert newest is not None
    assert metadata["project"]["version"] == newest[1] == lock_interceptor.__version__


def test_every_claim_about_failovers_has_its_test() -> None:
    """Each row of the table names tests that exist."""
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    failovers = section(README, "Failovers")
    rows = [row.split("|")[5] for row in failovers.splitlines() if row.count("|") == 6]
    claims = [re.findall(r"`(test_\w+)`", row) for row in rows[2:]]

    assert len(claims) >= 14
    for named in claims:
        assert named
        for name in named:
            assert f"def {name}(" in tests or (ROOT / "tests" / f"{name}.py").exists(), name
