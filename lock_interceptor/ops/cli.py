"""Where the ``lock-interceptor`` command begins, and the statuses that it ends with.

Needs the standard library only, so that it can say what is missing. Nothing else may depend on this module
but for the statuses.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

OK = 0
BROKEN = 1
"""The demo broke a promise, or could not show that it was kept; or the doctor found a problem."""
USAGE = 2
"""The command line makes no sense."""
UNAVAILABLE = 3
"""Something that the command needs does not answer, is not installed, does not start, or is taken."""
NOT_FOUND = 4
"""There is no such lock, or no such holder of it."""
MISCONFIGURED = 5
"""The settings are wrong, or Redis refuses them: a password, a right, TLS."""
DECLINED = 6
"""The question whether to do it was answered with no."""
INTERRUPTED = 130
"""Ctrl-C, as shells have it: 128 and the number of the signal."""


def main(argv: Sequence[str]) -> int:
    """Run a command line and return its exit status."""
    try:
        from lock_interceptor.ops.commands import app  # noqa: PLC0415 - its dependencies are optional
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("typer", "rich"):
            raise
        sys.stderr.write(f"{missing} is not installed: pip install 'lock-interceptor[cli]'\n")
        return UNAVAILABLE
    try:
        app(list(argv), prog_name="lock-interceptor")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK
    except KeyboardInterrupt:
        return INTERRUPTED
    return OK


def entrypoint() -> None:
    """Run the command line of this process."""
    status = main(sys.argv[1:])
    with contextlib.suppress(BrokenPipeError):  # whoever read it has gone
        sys.stdout.flush()
        sys.stderr.flush()
    # not sys.exit(): where calls to Temporal were cut off, the SDK's threads can block the interpreter's end
    os._exit(status)
