"""The fault matrix on one server: deploys under load that change the limit, the lease or the scripts."""

from pathlib import Path
from typing import Any

import pytest
from fault_load import LONG, ONE, THREE, LoadLock
from fault_matrix import Inject, Row, Scene, play
from servers import info, matrix_binary

from lock_interceptor.dev import RedisServer


def rolled(*changes: dict[str, Any]) -> Inject:
    """Each worker is replaced by one that differs, one after the other; and once more for each change."""

    async def inject(scene: Scene) -> None:
        for change in changes:
            for old in [worker for worker in scene.loaded.workers if worker.alive]:
                with scene.fault("deploy"):
                    new = scene.loaded.start(**change)
                    await scene.loaded.until_progress(workers=[new])
                    await old.stop()

    return inject


def limited(limit: int) -> dict[str, Any]:
    """A version of the code with this limit."""
    return {"locks": (LoadLock("rolling", limit),)}


ROWS = [
    Row(
        "max_locks 3, 2, 5",
        rolled(limited(2), limited(5)),
        {"faults": 4, "clients": 6, "limits changed": 2},
        {"lost": 0},
        how=limited(3),
    ),
    Row(
        "lease 1 s, then 3 s",
        rolled({"LOCK_LEASE_SECONDS": 3}),
        {"faults": 2, "clients": 4, "renewals": 1},
        {"lost": 0},
        how={"lease": 1.0, "locks": (ONE, THREE, LONG)},
    ),
    Row(
        "two versions of the scripts",
        rolled({"other_scripts": True}),
        {"faults": 2, "clients": 4},
        {"lost": 0},
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_a_rolling_deploy(row: Row, tmp_path: Path) -> None:
    """Old and new workers share the locks: nobody is evicted, none is too many, and nobody is forgotten."""
    with RedisServer(binary=matrix_binary()) as server:
        await play(row, server, tmp_path)
        scripts = int(info(server, "memory")["number_of_cached_scripts"])
    assert row.name != "two versions of the scripts" or scripts >= 6
