"""The documentation tells what is so: commands exist, recordings look real, links lead somewhere."""

import importlib
import re
import time
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from docs_blocks import (
    DOCS,
    PAGES,
    README,
    ROOT,
    Block,
    anchors,
    blocks,
    everything,
    links,
    named_files,
    require,
)
from docs_commands import command_lines, problem_of, simple_commands
from docs_run import fragments, is_program
from docs_shapes import RELEASED, odd_lines, recognised, shapes_of
from lock_crowd import Crowd, put
from operator_cli import Operator
from servers import command

from lock_interceptor import waiting as policy
from lock_interceptor.dev import RedisServer
from lock_interceptor.room import MAX_WAITERS
from lock_interceptor.settings import LockSettings
from lock_interceptor.spec import MAX_LEASE, MAX_LOCKS, MAX_NAME_BYTES, MIN_LEASE
from lock_interceptor.store import LockId

pytest_plugins = ["operator_fixtures"]

KINDS = {"python", "sh", "console", "text", "yaml"}
PICTURES = ["attempt.svg", "line.svg", "sorted-set.svg"]


def named(page: Path) -> str:
    """A page's name, for pytest."""
    return page.name


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_is_of_a_known_kind(page: Path) -> None:
    """A block of another kind would be checked by nothing here."""
    assert [f"{block}: {block.kind}" for block in blocks(page) if block.kind not in KINDS] == []
    assert page.read_text("utf-8").count("\n```") == 2 * len(blocks(page)), "a fence has no end"


@pytest.mark.parametrize("block", everything("sh", "console"), ids=str)
def test_every_command_would_be_understood(block: Block) -> None:
    """Sub-commands, options, make's targets, extras and files exist as they are written."""
    lines = command_lines(block)
    commands = [words for line in lines for words in simple_commands(line)]

    assert commands
    assert [f"{words}: {why}" for words in commands if (why := problem_of(words, block))] == []


@pytest.mark.parametrize("wrong", ["show", "list --nope", "frobnicate", "watch --interval often"])
def test_a_wrong_command_is_noticed(wrong: str) -> None:
    """The check above would see a missing argument, an unknown option or command, and a bad value."""
    block = Block(README, 1, "sh", f"lock-interceptor {wrong}")

    assert problem_of(simple_commands(block.text)[0], block)


@pytest.mark.parametrize("block", everything("console"), ids=str)
def test_recordings_look_like_real_output(block: Block) -> None:
    """What is shown below a command has the form of what the command prints today."""
    for typed, output in recordings(block):
        words = simple_commands(typed)[0]
        if words[0] == "lock-interceptor":
            shapes = shapes_of(words[1])
            assert shapes is not None, f"nobody has said what {words[1]} prints"
            assert odd_lines(output, shapes) == []
        else:
            assert recognised(output) == "what the program on the page prints"


def recordings(block: Block) -> list[tuple[str, str]]:
    """Each command of a block with what it printed."""
    parts = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)
    assert parts[0] == ""
    return list(zip(parts[1::2], parts[2::2], strict=True))


def test_real_output_looks_like_recordings(operator: Operator, valkey: RedisServer) -> None:
    """The forms that recordings are held to are those of the commands as they are."""
    app = operator.application
    line = Crowd(LockId(app, "jam", "north"), held=2, hot=2, parked=3, limit=2, waits_since=time.time() - 90)
    put(valkey, [line, Crowd(LockId(app, "calm")), Crowd(LockId(app, "idle"), held=0)])
    printed = {
        "list": operator.runs("list").out,
        "show": operator.runs("show", "jam[north]", "--waiters", "2").out,
        "watch": operator.runs("watch", "--count", "1").out,
        "doctor": operator.runs("doctor").out,
    }
    token = re.search(r"\b\d{16}\b", printed["show"])
    assert token is not None
    printed["release"] = operator.runs("release", "jam[north]", "--token", token[0], "--yes").out

    for name, output in printed.items():
        shapes = shapes_of(name)
        assert shapes is not None
        assert output.strip()
        assert odd_lines(output, shapes) == [], name


def test_what_is_no_output_is_noticed() -> None:
    """The forms are not so wide that anything fits."""
    assert odd_lines("freed: slot 0 of jam[north], 3 left\nreleased: slot 0", RELEASED)
    assert recognised("All went well.") is None


@pytest.mark.parametrize("block", everything("text"), ids=str)
def test_every_text_is_something_known(block: Block) -> None:
    """A block without a command is one of a few things, or it is held to what the code before it prints."""
    before = [each for each in blocks(block.page) if each.line < block.line]
    told = before and before[-1].kind == "python" and not is_program(before[-1])

    assert recognised(block.text) or told


def test_servers_know_the_configuration_that_is_advised(valkey: RedisServer) -> None:
    """A directive or right that no server knows would stop it, or be refused."""
    for block in everything("text"):
        kind = recognised(block.text)
        if kind == "a server's configuration" and "# redis.conf" in block.text:
            for directive in re.findall(r"^([a-z][\w-]*) ", block.text, re.MULTILINE):
                assert command(valkey, "CONFIG", "GET", directive), f"{block}: {directive}"
        if kind == "rules for a Redis user":
            for right in re.findall(r"\+([a-z]+(?:\|[a-z]+)?)", block.text):
                known = command(valkey, "COMMAND", "INFO", right)
                assert right == "sentinel|masters" or list(known), f"{block}: {right}"


@pytest.mark.parametrize("block", everything("yaml"), ids=str)
def test_yaml_can_be_read(block: Block) -> None:
    """What goes into a manifest or a configuration is whole."""
    require("yaml")
    yaml = importlib.import_module("yaml")

    assert isinstance(yaml.safe_load(block.text), dict | list)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Pages, pictures and headings that are linked exist, and pages of the site link inside it."""
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert page == README or target.is_relative_to(DOCS), f"{link} is not on the site"
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_file_that_is_named_exists(page: Path) -> None:
    """A path of the project in the text is one."""
    assert [path for path in named_files(page) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("picture", PICTURES)
def test_pictures_are_readable_in_light_and_dark(picture: str) -> None:
    """They are valid, have a name for those who cannot see them, and colours for both."""
    text = (DOCS / "images" / picture).read_text("utf-8")
    root = ET.fromstring(text)  # noqa: S314 - our own file

    assert root.get("aria-label")
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert "@media (prefers-color-scheme: dark)" in text


def test_worked_cases_are_what_the_policy_makes_of_them() -> None:
    """The numbers of the table follow from the formulas, and leave the body its time."""
    table = (DOCS / "choosing.md").read_text("utf-8").split("## Four worked cases")[1].split("\n\n")[2]
    rows = [row.strip("|").split("|") for row in table.splitlines()[2:]]
    assert len(rows) == 4
    for case, *cells in rows:
        limit, usual, longest, line, wait, close, hot, total, beat, lease = (
            int(cell.split()[0]) for cell in cells
        )
        allowance = policy.Allowance(schedule_to_close=total, start_to_close=close)
        assert wait == line // limit * usual, case
        assert hot == policy.hot_budget(allowance, LockSettings.model_fields["max_wait"].default.seconds), (
            case
        )
        assert close - hot >= longest, case
        assert total >= 2 * wait, case
        assert beat < close, case
        assert lease >= 10, case


def test_numbers_in_the_text_are_those_of_the_code() -> None:
    """Limits and defaults that the pages tell have not moved on."""
    sizes = (DOCS / "limits.md").read_text("utf-8").split("## Sizes")[1]
    how = (DOCS / "how-it-works.md").read_text("utf-8")

    assert f"1 to {MAX_LOCKS:,} " in sizes
    assert f"1 to {MAX_NAME_BYTES:,} bytes" in sizes
    assert (MIN_LEASE.total_seconds(), MAX_LEASE.total_seconds()) == (1, 86400)
    assert "1 second to 1 day" in sizes
    assert f"{MAX_WAITERS} with a plain" in how
    assert policy.NEAR == 2
    assert "the first two for each slot" in how


def test_programs_are_run_by_a_test_of_their_own() -> None:
    """A program on a page that nothing runs would rot."""
    programs = {block.page.name for block in everything("python") if is_program(block)}

    assert programs == {"README.md", "start.md"}  # test_readme.py and test_docs_start.py
    assert all(fragments(DOCS / page) for page in ("fencing.md", "keys-and-stacks.md", "testing.md"))
