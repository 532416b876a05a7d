"""Makes ``docs/benchmarks.md`` and its charts: prose from ``page.md``, every figure from the results.

In the prose ``{{verb argument}}`` stands for a figure: ``table TOPIC|MEASURE``, ``chart NAME``,
``value PATH``, ``ratio PATH // PATH``, ``machine``, ``targets``, ``tried`` and ``remarks``; a path is
``TOPIC|MEASURE|CASE|WHO``.
"""

import json
import re
import textwrap
from pathlib import Path

from charts import bars
from measuring import Row
from reporting import Report, figure, number
from targets import ratio, verdicts

HERE = Path(__file__).parent
CHARTS = {
    "cost": ("Activities a second, with nobody else wanting their locks", "cost|activities a second", False),
    "store": (
        "Pairs of acquire and release a second, a lock each",
        "store|pairs a second, a lock each",
        True,
    ),
    "hand-over": ("From the end of a body to the next, p50", "hand_over|p50 of a hand-over", True),
    "slot-use": ("Part of a lock's time in which a body ran", "hand_over|slot use", False),
    "fairness": ("Turns of the busiest divided by those of the idlest", "fairness|busiest / idlest", True),
    "line": ("Asking for a lock with so many in line, p50", "scale|p50 of an acquire", False),
    "recovery": (
        "Until a killed holder's slot is in use again",
        "recovery|a slot in use again after a kill",
        False,
    ),
}
MISSING = "not measured"


def write(report: Report, docs: Path) -> Path:
    """Write the page and the charts, and return the page's path."""
    page, images = docs / "benchmarks.md", docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    for name, (title, source, log) in CHARTS.items():
        if rows := report.results.table(*source.split("|")):
            (images / f"bench-{name}.svg").write_text(bars(title, rows, log=log), "utf-8")
    text = re.sub(
        r"\{\{(\w+)(?: ([^}]*))?\}\}",
        lambda match: _fill(report, match[1], (match[2] or "").strip()),
        (HERE / "page.md").read_text("utf-8"),
    )
    page.write_text("\n\n".join(map(_wrapped, text.split("\n\n"))), "utf-8")
    return page


def _wrapped(paragraph: str) -> str:
    """Prose in lines as long as those of the other pages, whatever has been put into it."""
    if paragraph[:1] in "|#!`-{":
        return paragraph
    end = "\n" * paragraph.endswith("\n")
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False) + end


def _fill(report: Report, verb: str, argument: str) -> str:
    results = report.results
    if verb == "table":
        return _table(results.table(*argument.split("|")))
    if verb == "chart":
        title, source, _ = CHARTS[argument]
        return f"![{title}](images/bench-{argument}.svg)" if results.table(*source.split("|")) else MISSING
    if verb == "value":
        row = results.find(argument)
        return MISSING if row is None else f"{number(row.median)} {row.unit}".removesuffix(" times")
    if verb == "ratio":
        found = ratio(results, *(path.strip() for path in argument.split("//")))
        return MISSING if found is None else number(found)
    fill = {"machine": _machine, "targets": _targets, "tried": _tried, "remarks": _remarks}
    return fill[verb](report)


def _table(rows: list[Row]) -> str:
    if not rows:
        return MISSING
    names = sorted(
        dict.fromkeys(row.who for row in rows), key=lambda name: (name.startswith(("floor", "bare")), name)
    )
    lines = [[f"{rows[0].measure}, {rows[0].unit}", *names], ["---", *("---:" for _ in names)]]
    for case in dict.fromkeys(row.case for row in rows):
        cells = {row.who: figure(row) for row in rows if row.case == case}
        lines.append([case, *(cells.get(name, "") for name in names)])
    return _rows(lines)


def _rows(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |".replace("  |", " |") for line in lines)


def _targets(report: Report) -> str:
    lines = [["target", "wanted", "measured", ""], ["---", "---", "---:", "---"]]
    for verdict in verdicts(report.results):
        word = f"**{verdict.word}**" if verdict.word.startswith("missed") else verdict.word
        lines.append([verdict.text, verdict.wanted, verdict.measured, word])
    return _rows(lines)


def _machine(report: Report) -> str:
    about, minutes = report.about, sum(report.seconds.values()) / 60
    apart = "".join(
        f" The figures of {topic} are from a run of their own, later on the same machine."
        for topic in about.get("apart", ())
    )
    libraries = ", ".join(f"{name} {version}" for name, version in about["libraries"].items())
    return (
        f"One run of {minutes:.0f} minutes on {about['cores']} cores ({about['architecture']}, "
        f"{about['system']}), with {about['load_before']:.1f} other processes wanting to run when it began. "
        f"Python {about['python']}, Valkey {about['valkey']}, Temporal CLI {about['temporal']} with its "
        f"history in memory; {libraries}. Servers, workers and clients share the cores."
        f"{apart}"
    )


def _tried(report: Report) -> str:
    """What was changed for speed; the figures were recorded when it was tried."""
    del report
    lines = [["what", "before", "after", "verdict"], ["---", "---:", "---:", "---"]]
    for entry in json.loads((HERE / "tried.json").read_text("utf-8")):
        before, after = (f"{number(entry[when])} {entry['unit']}" for when in ("before", "after"))
        lines.append([f"{entry['what']}: {entry['measure']}", before, after, entry["verdict"]])
    return _rows(lines)


def _remarks(report: Report) -> str:
    return (
        "\n".join(f"- {remark}" for remark in report.results.remarks)
        or "- Of the contestants everybody was there."
    )
