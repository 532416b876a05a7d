"""The README tells what is so: its code runs, and its tables are complete."""

import asyncio
import os
import re
import sys
import tomllib
from pathlib import Path
from uuid import uuid4

from rights import IN_CLUSTER, ON_SENTINEL, least_rights

import lock_interceptor
from lock_interceptor import LockError, LockSettings
from lock_interceptor.dev import RedisServer, TemporalServer

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
SOURCES = "\n".join(path.read_text("utf-8") for path in (ROOT / "lock_interceptor").rglob("*.py"))


def section(title: str) -> str:
    """The text under a heading."""
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


async def test_quick_start_runs(temporal_server: TemporalServer, valkey: RedisServer, tmp_path: Path) -> None:
    """Whoever copies the quick start into a file gets what it promises."""
    code = re.search(r"```python\n(.*?)```", section("Quick start"), re.DOTALL)
    assert code is not None
    file = tmp_path / "quickstart.py"
    file.write_text(code[1].replace("localhost:7233", temporal_server.address), "utf-8")

    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(file),
        env=os.environ | {"REDIS_URL": valkey.url, "APPLICATION_NAME": str(uuid4())},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()

    assert process.returncode == 0, err.decode()
    assert "order 1 picked in north at seat 0" in out.decode()


def test_every_setting_is_listed() -> None:
    """Each variable that is read stands in the table, and no other."""
    table = section("Settings")
    read = set()
    for name, field in LockSettings.model_fields.items():
        alias = field.validation_alias
        read |= {str(choice) for choice in getattr(alias, "choices", [name.upper()])}
    listed = set(re.findall(r"`((?:[A-Z]+_)+[A-Z]+)`", table))

    assert read == listed


def test_rights_are_the_least_ones() -> None:
    """The rights that are asked for are those that ``test_acl.py`` proves to be enough and needed."""
    quoted = re.search(r"ACL SETUSER locks >password (.*?)\n```", README, re.DOTALL)

    assert quoted is not None
    assert least_rights() == quoted[1].split()
    assert " ".join(f"+{name}" for name in IN_CLUSTER) in README
    assert all(f"+{name}" in README for name in ON_SENTINEL)


def test_every_error_is_listed() -> None:
    """Each error that a workflow can meet stands in the table, and no other."""
    errors = {error.__name__ for error in LockError.__subclasses__()}
    listed = set(re.findall(r"^\| `(Lock\w+)` \|", section("Errors"), re.MULTILINE))

    assert errors == listed


def test_every_log_event_is_listed() -> None:
    """Each event that is logged stands in the table, and no other."""
    logged = set(re.findall(r'log\.(?:debug|info|warning|error)\(\s*"(lock\.\w+)"', SOURCES))
    listed = set(re.findall(r"^\| `(lock\.\w+)` \|", section("Log events"), re.MULTILINE))

    assert logged == listed


def test_every_link_leads_somewhere() -> None:
    """Files that the README refers to exist, and so do its own headings."""
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", README) if not target.startswith("http")]
    headings = {
        f"#{title.lower().replace(' ', '-')}" for title in re.findall(r"^#+ (.+)$", README, re.MULTILINE)
    }

    assert targets
    for target in targets:
        assert target in headings or (ROOT / target).exists(), target


def test_version_is_the_same_everywhere() -> None:
    """The package, its metadata and the newest entry of the changelog agree."""
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    newest = re.search(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)

    assert newest is not None
    assert metadata["project"]["version"] == newest[1] == lock_interceptor.__version__


def test_every_claim_about_failovers_has_its_test() -> None:
    """Each row of the table names tests that exist."""
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    failovers = README.split("\n### Failovers\n")[1].split("\n## ")[0]
    rows = [row.split("|")[5] for row in failovers.splitlines() if row.count("|") == 6]
    claims = [re.findall(r"`(test_\w+)`", row) for row in rows[2:]]

    assert len(claims) >= 14
    for named in claims:
        assert named
        for name in named:
            assert f"def {name}(" in tests or (ROOT / "tests" / f"{name}.py").exists(), name
