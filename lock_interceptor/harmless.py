"""`Harmless`: whoever watches a lock (logging, metrics, tracing) must not be able to stop it.

A log sink may raise at any time: its disk is full, its pipe is closed, it cannot encode a name. A meter or a
tracer may, too. None of this is a reason to lose a lock or to fail an activity.
"""

from __future__ import annotations

import logging
import threading
from types import TracebackType

_SHOWN = 200
"""Characters of an error that are shown."""


class Harmless:
    """A context in which nothing is raised. The first error that it holds back is reported on stderr.

    Python's handler of last resort is used for that, since the logging of the application may be what fails.
    """

    def __init__(self, what: str) -> None:
        """Create a context, to be kept and entered often; safe to use from several threads.

        Args:
            what: names what may fail, for the report.
        """
        self._what = what
        self._reported = False

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Hold an error back."""
        if error is None:
            return False
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            return False  # somebody has pressed Ctrl-C
        if not self._reported:
            self._reported = True
            self._report(error)
        return True

    def _report(self, error: BaseException) -> None:
        try:
            shown = f"{type(error).__name__}: {error}"[:_SHOWN]
            text = (
                f"lock_interceptor: {self._what} failed with {shown!r}. Locks are not affected; this is "
                "reported once, so what it would have said may be missing from now on"
            )
            if logging.lastResort is not None:
                logging.lastResort.handle(
                    logging.LogRecord("lock_interceptor", logging.ERROR, __file__, 0, text, None, None)
                )
        except BaseException:  # noqa: S110 - stderr is closed, too; there is nobody left to tell
            pass
