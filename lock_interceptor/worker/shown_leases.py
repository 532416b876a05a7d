"""`ShownLeases`: lets the processes of a pool see how long their leases last.

The worker renews, in its own process. So it writes the ends of the leases into a small file, and the body
reads them there: both read the same clock, that of the machine. The file is in memory where the system offers
that. Once the body has opened it, the file has no name any more, so a crash leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from lock_interceptor.lease import Lease

_MEMORY = "/dev/shm"  # noqa: S108 - the file has a random name, and only its owner may open it
_NUMBER = struct.Struct("=d")


class ShownLeases:
    """The file, for the time in which a body runs: one number that says whether it began, then the ends."""

    def __init__(self, leases: Sequence[Lease]) -> None:
        """Prepare; `path` is there once it is entered.

        Args:
            leases: of one attempt.
        """
        self._leases = leases
        self._mutex = threading.Lock()  # the thread that renews writes, too
        self._ended: set[int] = set()
        self._file: int | None = None
        self.path = ""

    def __enter__(self) -> Self:
        """Create the file.

        Raises:
            OSError: there is no room for it.
        """
        folder = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        self._file, self.path = tempfile.mkstemp(prefix="lock_interceptor-", dir=folder)
        _write(self._file, 0, 0.0)
        for place, lease in enumerate(self._leases, 1):
            lease.show(partial(self._show, place))
            self._show(place, lease.end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove it."""
        for lease in self._leases:
            lease.show(None)
        with self._mutex:
            file, self._file = self._file, None
        if file is not None:
            os.close(file)
        with contextlib.suppress(FileNotFoundError):  # the body has done that
            Path(self.path).unlink()

    def seen(self) -> bool:
        """Whether the body has begun."""
        return self._file is None or _read(self._file, 0) > 0

    def _show(self, place: int, end: float) -> None:
        with self._mutex:
            if self._file is None or place in self._ended:
                return
            if end == -math.inf:
                self._ended.add(place)  # a renewal that is late must not undo it
            # what cannot be written leaves an end there that is too early, which is the safe side
            with contextlib.suppress(OSError):
                _write(self._file, place, end)

    @staticmethod
    @contextlib.contextmanager
    def watched(path: str, leases: Sequence[Lease]) -> Iterator[None]:
        """In the other process: while entered, these leases end when the worker says so.

        Raises:
            OSError: the worker has given up this attempt meanwhile.
        """
        file = os.open(path, os.O_RDWR)
        try:
            Path(path).unlink()
            for place, lease in enumerate(leases, 1):
                lease.watch(partial(_read, file, place))
            _write(file, 0, 1.0)
            yield
        finally:
            for lease in leases:
                lease.watch(partial(float, "-inf"))
            os.close(file)


def _write(file: int, place: int, number: float) -> None:
    os.pwrite(file, _NUMBER.pack(number), place * _NUMBER.size)


def _read(file: int, place: int) -> float:
    (number,) = _NUMBER.unpack(os.pread(file, _NUMBER.size, place * _NUMBER.size))
    return float(number)
