"""How commands end: what may happen becomes a message on standard error and a named status."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import typer

from lock_interceptor.errors import LockConfigurationError, LockStoreUnavailable
from lock_interceptor.ops.cli import INTERRUPTED, MISCONFIGURED, UNAVAILABLE
from lock_interceptor.settings import LockSettings

Result = TypeVar("Result")


def ending(message: str, status: int) -> typer.Exit:
    """Say why, and return what to raise to end with this status."""
    typer.echo(f"lock-interceptor: {message}", err=True)
    return typer.Exit(status)


@contextmanager
def interruptible(said: str = "interrupted") -> Iterator[None]:
    """End with a word and a status at Ctrl-C and, alike, at SIGTERM."""
    # a shell may have had Ctrl-C ignored, as for jobs in the background
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    terminate = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(said, err=True)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, terminate)


def read_settings(application: str | None) -> LockSettings:
    """The settings of the environment, for this application if one is named.

    Raises:
        Exit: they are invalid.
    """
    try:
        return LockSettings() if application is None else LockSettings(application_name=application)
    except LockConfigurationError as error:
        raise ending(str(error), MISCONFIGURED) from None


def carry_out(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command that asks Redis."""
    with interruptible():
        try:
            return asyncio.run(work)
        except LockConfigurationError as error:
            raise ending(str(error), MISCONFIGURED) from None
        except LockStoreUnavailable as error:
            raise ending(str(error), UNAVAILABLE) from None
