"""``watch``: the busiest locks, look after look."""

import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from command_line import running
from lock_crowd import Crowd, put
from operator_cli import Operator
from rich.console import Console
from rich.live import Live

from lock_interceptor.dev import RedisServer
from lock_interceptor.ops import cli
from lock_interceptor.ops.listing import Overview
from lock_interceptor.ops.texts import sparkline
from lock_interceptor.ops.watching import LiveLens
from lock_interceptor.redis_store.survey import LockCounts
from lock_interceptor.store import LockId

pytest_plugins = ["operator_fixtures"]


def test_without_a_terminal_it_prints_a_line_for_each_look(operator: Operator, valkey: RedisServer) -> None:
    """A log gets the sums and the locks with the longest lines, and no control characters."""
    app = operator.application
    put(valkey, [Crowd(LockId(app, "jam", "\x1b[2J"), held=2, hot=3, limit=2), Crowd(LockId(app, "calm"))])
    ended = operator.runs("watch", "--count", "2", "--interval", "0.2")
    assert ended.status == cli.OK
    assert [line.partition("  ")[2] for line in ended.out.splitlines()] == [
        "2 locks, 3 held, 3 waiting: jam[\\x1b[2J] 2 of 2 held 3 waiting, calm 1 held 0 waiting"
    ] * 2


def test_json_is_a_line_for_each_look(operator: Operator, valkey: RedisServer) -> None:
    """Each line is what ``list --json`` prints, with the time."""
    put(valkey, [Crowd(LockId(operator.application, "jam"), hot=3)])
    ended = operator.runs("watch", "j*", "--json", "--count", "2", "--interval", "0.2")
    first, second = map(json.loads, ended.out.splitlines())
    assert first["time"] < second["time"]
    assert first["problem"] is None
    assert first["locks"][0]["waiting"] == second["locks"][0]["waiting"] == 3
    assert set(operator.runs("list", "--json").json) | {"time", "problem"} == set(first)


def test_it_goes_on_over_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While Redis is away it says so, and goes on when it is back; Ctrl-C ends it without ado."""
    with RedisServer() as server:
        monkeypatch.setenv("REDIS_URL", server.url)
        monkeypatch.setenv("APPLICATION_NAME", str(uuid4()))
        with running("watch", "--interval", "0.2", temporary=tmp_path) as watch:
            watch.read_until("0 locks, 0 held")
            server.kill()
            watch.read_until("Redis at")
            server.start()
            watch.read_until("0 locks, 0 held")
            watch.send(signal.SIGINT)
            assert watch.process.wait(10) == cli.INTERRUPTED
            assert watch.errors() == "interrupted\n"


def counts(name: str, held: int, waiting: int) -> LockCounts:
    lock = LockId("app", name)
    return LockCounts(redis_key=name, lock=lock, held=held, waiting=waiting, present=waiting, limit=4)


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_fits_its_terminal(width: int) -> None:
    """Each lock keeps to one line, with the history of its line growing to the left, and none is too wide."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=12, force_terminal=True, color_system=None)
    with Live(console=console, auto_refresh=False) as live:
        lens = LiveLens(console, live, 2.0)
        for waiting in (0, 4, 7):
            locks = [counts("jam" * 40, 2, waiting), *(counts(f"lock-{n}", 1, 0) for n in range(30))]
            lens.show(Overview(busiest=locks, locks=31, held=32, waiting=waiting), "")
        lens.show(Overview(busiest=locks, locks=31, held=32, waiting=7), "Redis at here: no answer\x1b[2J")
        shown = console.render_lines(live.get_renderable(), pad=False)
    lines = ["".join(segment.text for segment in line) for line in shown]
    assert len(lines) <= 12
    assert all(len(line) <= width for line in lines)
    (jam,) = [line for line in lines if "jam" in line]
    assert "▁▅█" in jam
    assert "▅▅▅" in jam
    assert any("no answer\\x1b[2J" in line for line in lines)


def test_sparklines_show_the_newest_at_the_right() -> None:
    """Bars are scaled by the highest value, or a limit; only zero has the lowest bar."""
    assert sparkline([], 3) == "   "
    assert sparkline([0, 0], 3) == " ▁▁"
    assert sparkline([0, 1, 100], 3) == "▁▂█"
    assert sparkline([5, 1, 2, 3, 4], 2, most=4) == "▇█"
    assert sparkline([2], 1, most=4) == "▅"


def test_in_a_terminal_it_draws(valkey: RedisServer) -> None:
    """At a real terminal it redraws a table in place, and leaves the terminal as it was."""
    application = str(uuid4())
    put(valkey, [Crowd(LockId(application, "jam"), hot=3)])
    ours, theirs = pty.openpty()
    shell = {"REDIS_URL": valkey.url, "APPLICATION_NAME": application, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, "-m", "lock_interceptor", "watch", "--count", "2", "--interval", "0.2"],
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
        env={**os.environ, **shell},
    ) as process:
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError):  # the end, on Linux
            while part := os.read(ours, 4096):
                drawn += part
        assert process.wait(10) == cli.OK
    os.close(ours)
    text = drawn.decode()
    assert "jam" in text
    assert "▄" in text or "█" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
