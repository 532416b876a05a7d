"""The benchmarks, with sizes so small that figures say nothing: whether they run, and what they write."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
TOPICS = ("cost", "store", "hand_over", "fairness", "scale", "recovery")
WITHOUT_PEERS = """
import runpy, sys
from importlib import metadata
version = metadata.version
def without_peers(name):
    if name in ("python-redis-lock", "portalocker"):
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = without_peers
sys.path.insert(0, sys.argv[1])
del sys.argv[0]
sys.argv[0] += "/bench.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def bench(*arguments: object, code: str | None = None) -> str:
    """What the program prints; it has to end well."""
    start = ["-c", code, str(BENCHMARKS)] if code else [str(BENCHMARKS / "bench.py")]
    done = subprocess.run(  # noqa: S603 - ours
        [sys.executable, *start, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The figures of one quick run of everything, and what it printed."""
    path = tmp_path_factory.mktemp("bench") / "figures.json"
    return path, bench("--quick", "--json", path)


@pytest.fixture(scope="module")
def content(figures: tuple[Path, str]) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(figures[0].read_text())
    return loaded


@pytest.mark.parametrize("topic", TOPICS)
def test_each_topic_is_measured(topic: str, content: dict[str, Any], figures: tuple[Path, str]) -> None:
    """A quick run has finite figures of every topic, and shows each of its measures as a table."""
    rows = [row for row in content["rows"] if row["topic"] == topic]
    assert rows
    assert all(math.isfinite(value) and value >= 0 for row in rows for value in row["values"])
    assert all(row["unit"] and row["values"] for row in rows)
    assert {row["who"] for row in rows} & {"lock_interceptor", "locked"}
    assert f"{topic}: {rows[0]['measure']} ({rows[0]['unit']})" in figures[1]


def test_a_locked_activity_costs_two_round_trips(content: dict[str, Any]) -> None:
    """What does not depend on the machine is right in a quick run, too."""
    found = {
        (row["measure"], row["who"]): row["values"]
        for row in content["rows"]
        if row["topic"] == "cost" and row["case"] == "async, 1 in parallel"
    }
    assert found["round trips to Redis per activity", "locked"] == [2.0]
    events = "history events per activity"
    assert found[events, "locked"] == found[events, "bare"]
    assert found[events, "lock activities"][0] == pytest.approx(found[events, "bare"][0] + 12, abs=0.01)


def test_the_run_says_where_it_was_made_without_naming_the_machine(content: dict[str, Any]) -> None:
    """Figures come with cores and versions, and with nothing that tells which machine it was."""
    about = content["about"]
    assert about["cores"] >= 1
    assert about["quick"] is True
    assert not {"host", "node", "user"} & about.keys()


def test_the_page_is_made_from_the_figures(
    figures: tuple[Path, str], content: dict[str, Any], tmp_path: Path
) -> None:
    """The page has a row for each case of a table and a chart for each topic, and no place is left open."""
    bench("--page", figures[0], "--docs", tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    assert "{{" not in page
    for row in content["rows"]:
        if row["measure"] in ("activities a second", "slot use", "busiest / idlest", "memory"):
            assert f"| {row['case']} |" in page
    for chart in (tmp_path / "images").iterdir():
        assert f"](images/{chart.name})" in page
        assert "prefers-color-scheme: dark" in chart.read_text()
    assert len(list((tmp_path / "images").iterdir())) == 7


def test_a_library_that_is_not_installed_is_said(tmp_path: Path) -> None:
    """Without the other libraries the rest is measured, and the run says how to get them."""
    path = tmp_path / "figures.json"
    out = bench("--quick", "--only", "fairness", "--json", path, code=WITHOUT_PEERS)
    assert "python-redis-lock is not installed, so not measured: pip install" in out
    assert {row["who"] for row in json.loads(path.read_text())["rows"]} == {
        "lock_interceptor",
        "redis-py Lock",
    }


def test_the_committed_page_is_that_of_the_committed_figures(tmp_path: Path) -> None:
    """Nobody has changed a figure of the page by hand, nor forgotten to make it again."""
    bench("--page", BENCHMARKS / "results.json", "--docs", tmp_path)
    docs = BENCHMARKS.parent / "docs"
    assert (docs / "benchmarks.md").read_text() == (tmp_path / "benchmarks.md").read_text()
    for chart in (tmp_path / "images").iterdir():
        assert (docs / "images" / chart.name).read_text() == chart.read_text()
