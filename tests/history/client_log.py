"""What the clients believed: a line for each thing that a process asked, was told, and did.

One file for each process, one write for each line, so that a SIGKILL loses nothing that was written. Times
are readings of the package's own clock, which all processes of a machine share.
"""

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lock_interceptor.lease import clock


@dataclass(slots=True)
class Note:
    """One line.

    ``what`` is one of ``call``, ``answer`` (of the store); ``hold``, ``extend``, ``lose``, ``told`` (of a
    lease); ``body``, ``body_end``; ``write`` (of a resource that checks tokens); ``fault``, ``healed``,
    ``killed`` (by the test).
    """

    at: float
    process: int
    what: str
    lock: str = ""
    owner: str = ""
    call: str = ""
    more: dict[str, Any] = field(default_factory=dict)


class ClientLog:
    """Where this process writes its notes."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._process = os.getpid()
        path = directory / f"client-{self._process}.jsonl"
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._calls = 0
        self._lock = threading.Lock()

    def note(self, what: str, **more: Any) -> None:
        """Write a line, from any thread."""
        words = {"at": clock(), "process": self._process, "what": what, **more}
        os.write(self._file, json.dumps(words, separators=(",", ":")).encode() + b"\n")

    def new_call(self) -> str:
        """A name for a call to the store that no other call has, in any process."""
        with self._lock:
            self._calls += 1
            return f"{self._process}:{self._calls}"

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_notes(directory: Path) -> list[Note]:
    """The notes of all processes, in order."""
    notes = [note for path in sorted(directory.glob("client-*.jsonl")) for note in _read(path)]
    return sorted(notes, key=lambda note: note.at)


def _read(path: Path) -> Iterator[Note]:
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):  # the last line of a killed process may be torn
                words = json.loads(line)
                known = {name: words.pop(name) for name in Note.__slots__ if name in words}
                yield Note(**known, more=words)
