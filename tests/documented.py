"""What the package has names for, read from its code, and what Markdown pages say: to compare the two."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from lock_interceptor import LockError, LockSettings
from lock_interceptor.ops import cli
from lock_interceptor.ops.commands import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "lock_interceptor"
LEVELS = ("debug", "info", "warning", "error")


def page(name: str) -> str:
    """The text of a page below ``docs/``."""
    return (DOCS / name).read_text("utf-8")


def section(text: str, title: str) -> str:
    """What stands under a heading, up to the next one of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert found is not None, f"there is no heading {title!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str) -> list[list[str]]:
    """The cells of all tables in a text, without their headings; an escaped bar is no border."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            continue
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            found.pop()  # what stood above the line was the heading
        else:
            found.append(cells)
    return found


def code(text: str) -> list[str]:
    """What is set as code within the lines of a text; not its fenced blocks."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`]+)`", text)


def first_code(text: str) -> dict[str, list[str]]:
    """The rows of the tables in a text, by the first code in their first cell."""
    return {names[0]: row for row in rows(text) if (names := code(row[0]))}


def variables() -> dict[str, set[str]]:
    """The environment variables that each setting is read from."""
    found = {}
    for name, field in LockSettings.model_fields.items():
        choices = getattr(field.validation_alias, "choices", [name.upper()])
        found[name] = {str(choice) for choice in choices}
    return found


def error_names() -> set[str]:
    """The errors that a workflow can meet."""
    return {error.__name__ for error in LockError.__subclasses__()}


def log_events() -> dict[str, tuple[set[str], set[str]]]:
    """Levels and keys of each event that is logged; keys that come as a mapping are not among them."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for function, event, named in _calls_with_event():
        if function in {f"log.{level}" for level in LEVELS}:
            levels, keys = found.setdefault(event, (set(), set()))
            levels.add(function.removeprefix("log."))
            keys |= named
    return found


def span_events() -> dict[str, set[str]]:
    """Attributes of each event that is told to spans, but for those that come as a mapping."""
    found: dict[str, set[str]] = {}
    for function, event, named in _calls_with_event():
        if function == "tracing.event":
            found.setdefault(event, set()).update(named)
    return found


def commands() -> dict[str, list[Any]]:
    """The sub-commands with their options and arguments, but for ``--help``."""
    group: Any = typer.main.get_command(app)  # of click, or of what this Typer has in its place
    return {name: command.params for name, command in group.commands.items()}


def exit_statuses() -> set[int]:
    """The statuses that the command line ends with."""
    return {value for name, value in vars(cli).items() if name.isupper() and isinstance(value, int)}


def alerts() -> dict[str, str]:
    """The severity of each alert."""
    rules = re.split(r"^      - alert: ", page("alerts.yml"), flags=re.MULTILINE)[1:]
    found = {}
    for rule in rules:
        severity = re.search(r"severity: (\w+)", rule)
        assert severity is not None
        found[rule.split("\n")[0]] = severity[1]
    return found


def _calls_with_event() -> Iterator[tuple[str, str, set[str]]]:
    """Calls of ``<name>.<function>("lock.…", …)`` in the package: function, event, and named arguments."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            event = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            if isinstance(event, str) and re.fullmatch(r"lock\.\w+", event):
                keys = {keyword.arg for keyword in node.keywords if keyword.arg}
                yield ast.unparse(node.func), event, keys
