"""A resource that looks at fencing tokens, as one that guards itself against late writers does."""

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO

from lock_interceptor.lease import clock

from .hooks import VARIABLE

PATIENCE = 0.5
"""Seconds to wait for another writer."""


class FencedResource:
    """Takes a write if no younger token has written to the slot before; for all processes of a machine."""

    def __init__(self, directory: Path | None = None) -> None:
        """Open it in the directory of a history; in a worker process that is in the environment."""
        self._directory = directory or Path(os.environ[VARIABLE])

    def write(self, token: int, *, slot: int = 0, name: str = "resource") -> bool:
        """Try to write. Returns whether the token was accepted.

        Who has been stopped while it was writing keeps all others from it, as it may be with a real resource.
        """
        state, new = self._directory / "resource.json", self._directory / "resource.new"
        with (self._directory / "resource.lock").open("a") as lock:
            if not _locked(lock):  # until it is closed
                return False
            highest = json.loads(state.read_text()) if state.exists() else {}
            place = f"{slot} of {name}"
            accepted = token >= highest.get(place, 0)
            if accepted:  # at once, and before it is noted: a process may be killed at any moment
                new.write_text(json.dumps({**highest, place: token}))
                new.replace(state)
            self._note(resource=name, token=token, slot=slot, accepted=accepted)
        return bool(accepted)

    def _note(self, **more: object) -> None:
        line = json.dumps({"at": clock(), "process": os.getpid(), "what": "write", **more})
        with (self._directory / "client-resource.jsonl").open("a") as notes:
            notes.write(line + "\n")


def _locked(file: IO[str]) -> bool:
    give_up = clock() + PATIENCE
    while clock() < give_up:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.002)
    return False
