"""What a demo worker notes down, one JSON line for each fact, in a file of its own.

Lines go to the kernel as they are written, so they outlive a worker that is killed in the next instant.
Times are readings of CLOCK_MONOTONIC in seconds: one clock for all processes of a machine.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

now = time.monotonic


class Journal:
    """Appends to the file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, event: str, **facts: Any) -> None:
        """Note an event; `at` is added."""
        line = json.dumps({"event": event, "at": now(), **facts}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")


class JournalReader:
    """Reads the file while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """The events since the last call. A line that is not whole yet is left for the next one."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return []
        self._offset += len(whole) + 1
        return [json.loads(line) for line in whole.split(b"\n")]
