"""The variables of a test's own process."""

import os

import pytest

_OURS = ("REDIS_", "LOCK_", "ATLAN_", "APPLICATION_NAME", "IS_LOCKING")


def unset_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset, for this test, all variables that `LockSettings` reads; the shell may be set up for a server."""
    for name in os.environ:
        if name.upper().startswith(_OURS):
            monkeypatch.delenv(name)
