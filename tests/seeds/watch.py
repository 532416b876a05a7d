"""A pytest plugin for a run on a copy: notes which tests failed, and makes sure that the copy is tested.

It writes one line of JSON for each failed test, `id` and `text`, to the file that `NOTES` names.
"""

import json
import os
from pathlib import Path

import pytest

import lock_interceptor

COPY, NOTES = "SEEDED_COPY", "SEEDED_NOTES"
"""Environment variables: the directory of the copy, and the file for what failed."""

GATE = f"""
import importlib.util, os
origin = importlib.util.find_spec("lock_interceptor").origin
if not origin.startswith(os.environ["{COPY}"] + os.sep):
    os.write(2, f"{{origin}} would be tested instead of the copy\\n".encode())
    os._exit(97)
"""
"""A ``sitecustomize`` that no process gets past which would import another `lock_interceptor`."""


def pytest_sessionstart() -> None:
    """The installed package must not be taken for the copy."""
    copy, origin = Path(os.environ[COPY]), Path(lock_interceptor.__file__)
    if not origin.is_relative_to(copy):
        pytest.exit(f"{origin} would be tested instead of the copy in {copy}", returncode=97)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Only what a test itself found counts, not what went wrong before or after it."""
    if report.when == "call" and report.failed:
        with Path(os.environ[NOTES]).open("a", encoding="utf-8") as notes:
            notes.write(json.dumps({"id": report.nodeid, "text": report.longreprtext}) + "\n")
