"""Bar charts as SVG, readable on light and on dark pages."""

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from measuring import Row
from reporting import number

_WIDTH, _LEFT, _RIGHT = 760, 250, 90
_BAR, _GAP, _TOP = 13, 12, 74
# red and green alone would look alike to many, so they differ in lightness as well
_LIGHT = ("#1f6feb", "#8c959f", "#bf6b04", "#7a3fb0", "#1a7f5a", "#b3264a")
_DARK = ("#6cb0ff", "#8b949e", "#f0a84a", "#c79bf2", "#4cc798", "#ff8fa8")


def bars(title: str, rows: Sequence[Row], *, log: bool = False) -> str:
    """A group of bars for each case, one for each contestant; whiskers from the lowest to the highest."""
    return "\n".join(_Bars(title, rows, log=log).draw()) + "\n"


class _Bars:
    def __init__(self, title: str, rows: Sequence[Row], *, log: bool) -> None:
        self._title, self._rows, self._log = title, rows, log
        names = dict.fromkeys(row.who for row in rows)
        ours = [name for name in names if name in ("lock_interceptor", "locked")]
        floor = [name for name in names if name in ("floor", "bare")]
        # the same colour for the same part in each chart
        others = sorted(names.keys() - {*ours, *floor})
        self._colours = (
            dict.fromkeys(ours, 0) | dict.fromkeys(floor, 1) | {n: i + 2 for i, n in enumerate(others)}
        )
        self._cases = list(dict.fromkeys(row.case for row in rows))
        highest = max(max(row.values) for row in rows)
        lowest = min((row.median for row in rows if row.median > 0), default=1.0)
        self._high = math.ceil(math.log10(highest or 1)) if log else highest * 1.02 or 1.0
        self._low = math.floor(math.log10(lowest) - 0.2) if log else 0.0

    def draw(self) -> Iterator[str]:
        height = _TOP + len(self._rows) * (_BAR + 2) + len(self._cases) * _GAP + 24
        label = f"{self._title}, in {self._rows[0].unit}"
        size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">'
        yield from _style()
        yield f'<rect class="paper" width="{_WIDTH}" height="{height}"/>'
        yield _text(14, 24, label + (", logarithmic" if self._log else ""), "title")
        yield from self._legend()
        y = float(_TOP)
        for case in self._cases:
            rows = sorted(
                (row for row in self._rows if row.case == case), key=lambda row: self._colours[row.who]
            )
            middle = y + len(rows) * (_BAR + 2) / 2 + 4
            yield _text(_LEFT - 10, middle, case, "case")
            for row in rows:
                yield from self._bar(row, y)
                y += _BAR + 2
            y += _GAP
        yield f'<path class="axis" d="M{_LEFT},{_TOP - 6}V{y:.0f}"/></svg>'

    def _legend(self) -> Iterator[str]:
        x = 14.0
        for name, colour in sorted(self._colours.items(), key=lambda item: item[1]):
            yield f'<rect class="c{colour}" x="{x:.0f}" y="40" width="12" height="12" rx="2"/>'
            yield _text(x + 17, 51, name, "name")
            x += 36 + 7.2 * len(name)

    def _bar(self, row: Row, y: float) -> Iterator[str]:
        end = self._x(row.median)
        about = f"{row.who}, {row.case}: {number(row.median)} {row.unit}"
        yield f'<g><title>{escape(about)}</title><rect class="c{self._colours[row.who]}" x="{_LEFT}" '
        yield f'y="{y:.1f}" width="{max(end - _LEFT, 1):.1f}" height="{_BAR}" rx="2"/>'
        low, high = self._x(min(row.values)), self._x(max(row.values))
        if high - low > 2:
            yield f'<path class="spread" d="M{low:.1f},{y + _BAR / 2:.1f}H{high:.1f}"/>'
        yield _text(max(end, high) + 6, y + _BAR - 3, number(row.median), "value") + "</g>"

    def _x(self, value: float) -> float:
        if self._log:
            value = math.log10(value) if value > 0 else self._low
        part = (value - self._low) / ((self._high - self._low) or 1)
        return _LEFT + max(min(part, 1.0), 0.0) * (_WIDTH - _LEFT - _RIGHT)


def _style() -> Iterator[str]:
    yield '<style>text { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif }'
    yield ".title { font-size: 15px; font-weight: 600 } .case { text-anchor: end } .value { font-size: 11px }"
    yield ".axis, .spread { fill: none; stroke-width: 1 }"
    yield from _colours("#ffffff", "#1f2328", "#656d76", _LIGHT)
    yield "@media (prefers-color-scheme: dark) {"
    yield from _colours("#0d1117", "#e6edf3", "#9198a1", _DARK)
    yield "}</style>"


def _colours(paper: str, ink: str, soft: str, colours: Sequence[str]) -> Iterator[str]:
    yield f".paper {{ fill: {paper} }} .title, .name, .case {{ fill: {ink} }} .value {{ fill: {soft} }}"
    yield f".axis {{ stroke: {soft} }} .spread {{ stroke: {ink} }}"
    yield " ".join(f".c{number} {{ fill: {colour} }}" for number, colour in enumerate(colours))


def _text(x: float, y: float, text: str, css: str) -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
