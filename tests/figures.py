"""What tests measured, shown at the end of a run: what they print is not seen when they pass."""

import pytest

MARK = "measured: "


def measured(text: str) -> None:
    """Have a line shown at the end of the run, after the name of the test's file."""
    print(f"\n{MARK}{text}")


def show(terminal: pytest.TerminalReporter, title: str) -> None:
    """Show the lines of all tests that passed, each with the file that it comes from."""
    shown = [
        f"{report.location[0].removeprefix('tests/')}: {line.removeprefix(MARK)}"
        for report in terminal.stats.get("passed", [])
        if report.when == "call"
        for line in report.capstdout.splitlines()
        if line.startswith(MARK)
    ]
    if shown:
        terminal.section(title)
    for line in shown:
        terminal.line(line)
