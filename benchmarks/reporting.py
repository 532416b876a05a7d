"""Shows results as tables on the terminal, and keeps them as JSON."""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from measuring import Results, Row
from rich.console import Console
from rich.table import Table


@dataclass
class Report:
    """A run's figures, and what it ran on."""

    results: Results
    about: dict[str, Any]
    seconds: dict[str, float]

    def save(self, path: Path) -> None:
        rows = [
            {**asdict(row), "values": [_short(value) for value in row.values]}
            for row in self.results.rows.values()
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"about": self.about, "seconds": self.seconds, "remarks": self.results.remarks}
        lines = ",\n".join("    " + json.dumps(row) for row in rows)
        head = json.dumps(content, indent=2).removesuffix("\n}")
        path.write_text(f'{head},\n  "rows": [\n{lines}\n  ]\n}}\n', "utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        content = json.loads(path.read_text("utf-8"))
        results = Results(remarks=content["remarks"])
        for fields in content["rows"]:
            row = Row(**fields)
            results.rows[row.topic, row.measure, row.case, row.who] = row
        return cls(results, content["about"], content["seconds"])

    def write_page(self, docs: Path) -> Path:
        """Write the page and its charts; only here, since a terminal needs neither."""
        from page import write  # noqa: PLC0415 - the page needs reports

        return write(self, docs)


def _short(value: float) -> float:
    """Four significant figures are more than the spread allows."""
    return float(f"{value:.4g}")


def number(value: float) -> str:
    """Three significant figures, and no more digits than that."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{2 if abs(value) < 10 else 1}f}" if abs(value) >= 1 else f"{value:.3g}"


def figure(row: Row) -> str:
    """A median with its spread."""
    text = number(row.median)
    return text if len(row.values) == 1 or not row.spread else f"{text} ± {row.spread:.0%}"


class Screen:
    """The terminal: progress while something runs, then its tables."""

    def __init__(self) -> None:
        console = Console()
        self.console = console if console.is_terminal else Console(width=140)

    @contextlib.contextmanager
    def progress(self, topic: str) -> Iterator[Callable[[str], None]]:
        with self.console.status(f"{topic} ...") as status:

            def say(text: str) -> None:
                if self.console.is_terminal:
                    status.update(f"{topic}: {text}")
                else:
                    self.console.print(f"{topic}: {text}", highlight=False)

            yield say

    def topic(self, results: Results, topic: str, seconds: float) -> None:
        for measure in results.measures(topic):
            rows = results.table(topic, measure)
            names = list(dict.fromkeys(row.who for row in rows))
            self.console.print(f"{topic}: {measure} ({rows[0].unit})", highlight=False, style="bold")
            table = Table()
            table.add_column("case")
            for name in names:
                table.add_column(name, justify="right")
            for case in dict.fromkeys(row.case for row in rows):
                cells = {row.who: figure(row) for row in rows if row.case == case}
                table.add_row(case, *(cells.get(name, "") for name in names))
            self.console.print(table)
        self.console.print(f"{topic} took {seconds:.0f} s\n", highlight=False)

    def end(self, report: Report) -> None:
        from targets import verdicts  # noqa: PLC0415

        table = Table()
        for name in ("target", "wanted", "measured", ""):
            table.add_column(name)
        for verdict in verdicts(report.results):
            if verdict.value is not None:
                table.add_row(verdict.text, verdict.wanted, verdict.measured, verdict.word)
        if table.row_count:
            self.console.print(table)
        for remark in report.results.remarks:
            self.console.print(remark, highlight=False)

    def wrote(self, path: Path) -> None:
        self.console.print(f"wrote {path}", highlight=False)
