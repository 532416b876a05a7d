"""Shows how far a soak is: one live line on a terminal, a plain line every few seconds elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator

from soak_round import State, Watch

PLAIN_EVERY = 5.0
"""Seconds."""


@contextlib.contextmanager
def display(seconds: float) -> Iterator[Watch]:
    """Show it while entered; a soak of so many seconds."""
    begun = time.monotonic()

    def text(state: State) -> str:
        return describe(state, time.monotonic() - begun, seconds)

    if not sys.stdout.isatty():
        yield _plain(text)
        return
    from rich.console import Console  # noqa: PLC0415 - not everybody needs it

    with Console().status("starting") as status:
        yield lambda state: status.update(text(state))


def describe(state: State, passed: float, seconds: float) -> str:
    """One line."""
    one = state.round
    broken = " + ".join(state.current) or "nothing"
    return (
        f"{passed:4.0f} of {seconds:.0f} s, round {one.number} on {one.topology}: "
        f"grants {state.seen['began']}, lost {state.seen['LockLost']}, "
        f"faults {sum(state.injected.values())}, broken now: {broken}"
    )


def _plain(text: object) -> Watch:
    shown = 0.0

    def show(state: State) -> None:
        nonlocal shown
        if time.monotonic() - shown >= PLAIN_EVERY:
            shown = time.monotonic()
            print(text(state), flush=True)  # type: ignore[operator]

    return show
