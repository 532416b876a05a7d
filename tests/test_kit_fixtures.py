"""The fixtures and the imports of the testing kit, in projects of their own."""

import json
import subprocess
import sys
from pathlib import Path

USER = """
import asyncio

import pytest

from lock_interceptor import LockInterceptor, needs_lock
from lock_interceptor.testing import (
    FaultyLockStore, InMemoryLockStore, LockedActivityEnvironment, OverlapRecorder, quick_settings,
)

pytest_plugins = ["lock_interceptor.testing.fixtures"]


@pytest.fixture
def lock_settings():
    return quick_settings(application_name="mine")


@needs_lock(lock_name="warehouse")
async def pick() -> str:
    return "picked"


def test_kinds(lock_store, faulty_lock_store, lock_interceptor, overlap) -> None:
    assert isinstance(lock_store, InMemoryLockStore)
    assert isinstance(faulty_lock_store, FaultyLockStore) and faulty_lock_store.inner is lock_store
    assert isinstance(lock_interceptor, LockInterceptor) and lock_interceptor.store is faulty_lock_store
    assert lock_interceptor.settings.application_name == "mine"
    assert isinstance(overlap, OverlapRecorder)


def test_environment(locked_environment, faulty_lock_store) -> None:
    assert locked_environment.interceptor.store is faulty_lock_store
    assert locked_environment.interceptor.settings.application_name == "mine"
    assert asyncio.run(locked_environment.run(pick)) == "picked"


async def test_environment_in_a_loop(locked_environment) -> None:
    assert await locked_environment.run(pick) == "picked"
"""


def run_pytest(directory: Path, *options: str) -> str:
    """Run the tests of a user's project, and return what is printed."""
    ran = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-m", "pytest", "-q", "-W", "error", *options],
        check=False,
        cwd=directory,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_fixtures_in_a_users_project(tmp_path: Path) -> None:
    """They work in sync and async tests, leave nothing open, and take the user's settings."""
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    (tmp_path / "test_mine.py").write_text(USER)
    assert "3 passed" in run_pytest(tmp_path)


def test_fixtures_need_no_plugin_for_async_tests(tmp_path: Path) -> None:
    """Whoever runs coroutines by other means than pytest-asyncio can use them as well."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_mine.py").write_text(USER.split("async def test_environment_in_a_loop", maxsplit=1)[0])
    assert "2 passed" in run_pytest(tmp_path, "-p", "no:asyncio")


def test_the_kit_imports_neither_redis_nor_pytest() -> None:
    """Tests need no client of Redis to be imported, and unittest will do."""
    code = "import sys, json; from lock_interceptor.testing import *; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    loaded = set(json.loads(ran.stdout))
    assert "lock_interceptor.testing.environment" in loaded
    assert not loaded & {"redis", "hiredis", "pytest", "_pytest", "structlog"}


def test_public_names_are_sorted_and_documented() -> None:
    """What the kit offers is complete, in order, and tells what it is for."""
    from lock_interceptor import testing  # noqa: PLC0415 - the names are what is tested

    assert testing.__all__ == sorted(testing.__all__)
    assert all(getattr(testing, name).__doc__ for name in testing.__all__)
