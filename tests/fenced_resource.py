"""A resource that protects itself by fencing tokens, as a database does with one more condition."""

import fcntl
import os
from pathlib import Path


class FencedResource:
    """Takes a write only if no newer holder of the lock has written. Shared by processes, through a file."""

    def __init__(self, directory: str | Path) -> None:
        self._path = Path(directory, "resource")

    def write(self, token: int) -> bool:
        """Write under this token; False if it is refused."""
        with os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT), "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            tokens = [int(line) for line in file]
            if tokens and token < tokens[-1]:
                return False
            file.write(f"{token}\n")
        return True

    def tokens(self) -> list[int]:
        """The tokens of the writes that were taken, in order."""
        return [int(line) for line in self._path.read_text().splitlines()]
