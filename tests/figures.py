"""What tests measured, shown at the end of a run: what they print is not seen when they pass."""

from collections.abc import Iterable, Iterator

import pytest

MARK = "measured: "


def measured(text: str) -> None:
    """Have a line shown at the end of the run, after the name of the test's file."""
    print(f"\n{MARK}{text}")


def lines(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """The lines of all tests that ran, each with the file that it comes from."""
    for report in reports:
        if report.when != "call":
            continue
        for line in report.capstdout.splitlines():
            if line.startswith(MARK):
                yield f"{report.location[0].removeprefix('tests/')}: {line.removeprefix(MARK)}"
