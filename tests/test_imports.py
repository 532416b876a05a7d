"""What gets imported when; workflow files import activity modules, so what these need has to be light."""

import json
import subprocess
import sys

import pytest

HEAVY = ("redis", "hiredis", "structlog", "pydantic", "pydantic_core", "pydantic_settings")

USE = """
import lock_interceptor
from lock_interceptor import (
    Lease, LockBusy, LockConfigurationError, LockError, LockLost, LockNotAcquired, LockSpec,
    LockStoreUnavailable, current_lease, needs_lock,
)
from temporalio import activity

@activity.defn
@needs_lock(lock_name="db", max_locks=3, key=str)
async def pick(order: str) -> None: ...

try:
    current_lease()
except LockConfigurationError:
    pass
try:
    needs_lock(max_locks=0)
except LockConfigurationError:
    pass
lock_interceptor.__version__
dir(lock_interceptor)
"""

REPORT = """
import json, sys
print(json.dumps(sorted(sys.modules)))
"""


def modules_after(code: str) -> set[str]:
    """The modules of a fresh interpreter that has run `code`."""
    ran = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code + REPORT], check=True, capture_output=True, text=True
    )
    return set(json.loads(ran.stdout))


def test_activity_modules_import_nothing_heavy() -> None:
    """All that an activity module uses needs neither redis nor structlog nor pydantic, nor the worker."""
    loaded = modules_after(USE)
    assert {name for name in loaded if name.split(".")[0] in HEAVY} == set()
    assert {name for name in loaded if name.startswith("lock_interceptor")} == {
        "lock_interceptor",
        *(f"lock_interceptor.{name}" for name in ("errors", "lease", "marker", "spec")),
    }
    assert "temporalio.worker" not in loaded


@pytest.mark.parametrize(
    ("name", "needed", "not_needed"),
    [
        ("LockSettings", "pydantic_settings", {"redis", "structlog"}),
        ("LockStore", "lock_interceptor.store", {"redis", "structlog", "pydantic"}),
        ("RedisLockStore", "redis.asyncio", {"lock_interceptor.worker"}),
        ("LockInterceptor", "redis.asyncio", {"lock_interceptor.worker.plugin"}),
        ("LockPlugin", "lock_interceptor.worker.interceptor", set()),
    ],
)
def test_heavier_names_load_on_first_use(name: str, needed: str, not_needed: set[str]) -> None:
    """Asking for a name loads its module and what that needs, whichever comes first."""
    loaded = modules_after(f"from lock_interceptor import {name}\nassert {name}.__name__ == {name!r}\n")
    assert needed in loaded
    assert not loaded & not_needed


def test_testing_module_needs_no_redis() -> None:
    """Users' own tests run without Redis, so what they import does not need its client."""
    assert "redis" not in modules_after("import lock_interceptor.testing\n")
