"""A run as a picture: one lane for each slot of each lock, one bar for each execution. SVG, made by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from xml.sax.saxutils import escape

from lock_interceptor.dev.demo.line import Turn, turns
from lock_interceptor.dev.demo.plan import Lock
from lock_interceptor.dev.demo.promises import Run
from lock_interceptor.dev.demo.record import Execution

_WIDTH = 1200
_LEFT, _RIGHT, _TOP, _BOTTOM = 160, 24, 96, 40
_LANE, _BAR = 24, 18
_LINE, _GAP = 26, 12
"""Heights of the graph of those who wait, and of the gap between two locks."""
_NUMBERED = 26
"""Width from which a bar shows its order's number."""
_MOST_TICKS = 14

_WORKERS = ("a", "b", "c")
_LIGHT = {
    "paper": "#ffffff", "ink": "#1f2328", "soft": "#656d76", "rule": "#d8dee4", "lane": "#f3f5f7",
    "wait": "#d9c27a", "kill": "#cf222e", "on": "#ffffff", "a": "#2f6fdb", "b": "#cf6a0c", "c": "#2a9d5c",
}  # fmt: skip
_DARK = {
    "paper": "#0d1117", "ink": "#e6edf3", "soft": "#9198a1", "rule": "#30363d", "lane": "#161b22",
    "wait": "#6e5f2a", "kill": "#ff6b63", "on": "#0d1117", "a": "#5b9bff", "b": "#f0913a", "c": "#46bf78",
}  # fmt: skip


def timeline(run: Run) -> str:
    """Draw the run with locks."""
    return "\n".join(_Timeline(run).draw()) + "\n"


class _Timeline:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._in_line = turns(run.record)
        ends = [execution.end for execution in run.record.executions if execution.end is not None]
        leases = [slot.lease_end for slot in run.kill.slots] if run.kill else []
        self._seconds = max([*ends, *leases, run.began + 1]) - run.began
        names = sorted({execution.worker for execution in run.record.executions})
        self._colours = {name: _WORKERS[number % len(_WORKERS)] for number, name in enumerate(names)}
        lanes = sum(lock.limit for lock in run.locks)
        self._bottom = _TOP + lanes * _LANE + len(run.locks) * (_LINE + _GAP)
        self._height = self._bottom + _BOTTOM

    def draw(self) -> Iterator[str]:
        size = f'viewBox="0 0 {_WIDTH} {self._height}" width="{_WIDTH}" height="{self._height}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{self._title()}">'
        yield from _style()
        yield f'<rect class="paper" width="{_WIDTH}" height="{self._height}"/>'
        yield _text(20, 32, self._title(), "title")
        yield from self._legend()
        yield from self._axis()
        top = _TOP
        for lock in self._run.locks:
            yield from self._lock(lock, top)
            top += lock.limit * _LANE + _LINE + _GAP
        yield from self._kill()
        yield "</svg>"

    def _title(self) -> str:
        return f"{len(self._run.orders)} workflows, {len(self._run.locks)} locks: who held which slot when"

    def _x(self, at: float) -> float:
        return _LEFT + (at - self._run.began) / self._seconds * (_WIDTH - _LEFT - _RIGHT)

    def _legend(self) -> Iterator[str]:
        killed = self._run.kill.worker if self._run.kill else None
        x = 20.0
        for name, colour in self._colours.items():
            role = ", killed" if name == killed else ""
            yield _rect(x, 48, 14, 14, f"bar {colour}")
            yield _text(x + 20, 60, label := f"worker {name}{role}", "legend")
            x += 40 + 6 * len(label)
        if killed in self._colours:
            yield _rect(x, 48, 14, 14, f"dead-{self._colours[killed]}")
            yield _text(x + 20, 60, label := "cut off: the slot is kept until the lease ends", "legend")
            x += 40 + 6 * len(label)
        yield _rect(x, 54, 14, 8, "wait")
        yield _text(x + 20, 60, "waiting in line", "legend")

    def _axis(self) -> Iterator[str]:
        step = next(step for step in _steps() if self._seconds / step <= _MOST_TICKS)
        for number in range(int(self._seconds / step) + 1):
            x = self._x(self._run.began + number * step)
            yield _line(x, _TOP - 4, x, self._bottom - _GAP + 4, "rule")
            yield _text(x, self._bottom + 10, f"{number * step:g} s", "tick")

    def _lock(self, lock: Lock, top: float) -> Iterator[str]:
        yield f'<g id="{escape(lock.label, {chr(34): "&quot;"})}">'
        width = _WIDTH - _LEFT - _RIGHT
        yield _text(20, top + 16, lock.label, "lock")
        for slot in range(lock.limit):
            y = top + slot * _LANE
            yield _rect(_LEFT, y + (_LANE - _BAR) / 2, width, _BAR, "lane")
            yield _text(_LEFT - 8, y + 16, f"slot {slot}", "slot")
            for execution in self._run.record.executions:
                if (execution.lock, execution.slot) == (lock.label, slot):
                    yield from self._bar(execution, y + (_LANE - _BAR) / 2)
        yield from self._waiting(self._in_line.get(lock.label, []), top + lock.limit * _LANE)
        yield "</g>"

    def _bar(self, execution: Execution, y: float) -> Iterator[str]:
        began, end = self._run.began, execution.end or self._run.began + self._seconds
        colour = self._colours[execution.worker]
        left, right = self._x(execution.start), self._x(end)
        about = (
            f"{execution.order} on worker {execution.worker}, {execution.outcome}, token {execution.token}, "
            f"{execution.start - began:.2f} to {end - began:.2f} s"
        )
        yield f"<g><title>{escape(about)}</title>"
        # a hair narrower than it is, so that one bar ends visibly where the next begins
        yield _rect(left, y, max(right - left - 0.6, 0.8), _BAR, f"bar {colour}")
        if right - left >= _NUMBERED:
            yield _text((left + right) / 2, y + 13, execution.order.rpartition("-")[2], "number")
        if execution.outcome == "killed" and self._run.kill:
            for dead in self._run.kill.slots:
                if (dead.lock, dead.token) == (execution.lock, execution.token):
                    rest = self._x(dead.lease_end) - right
                    yield _rect(right, y, max(rest, 0), _BAR, f"dead-{colour}")
        yield "</g>"

    def _waiting(self, of_lock: Sequence[Turn], y: float) -> Iterator[str]:
        """How many stood in line, as an area of steps."""
        over = self._run.began + self._seconds
        steps = sorted(
            step
            for turn in of_lock
            for step in (
                (turn.arrived_after, 1),
                ((turn.grant.answered if turn.grant else None) or over, -1),
            )
        )
        counts = list(accumulate(change for _, change in steps))
        most = max(counts, default=0)
        yield _text(_LEFT - 8, y + _LINE - 8, f"waiting, up to {most}", "slot")
        if not most:
            return
        scale = (_LINE - 4) / most
        path = [f"M{_LEFT},{y + _LINE:.1f}"]
        for (at, _), count in zip(steps, counts, strict=True):
            path.append(f"H{self._x(at):.1f}V{y + _LINE - count * scale:.1f}")
        yield f'<path class="wait" d="{"".join(path)}V{y + _LINE:.1f}Z"/>'

    def _kill(self) -> Iterator[str]:
        if self._run.kill is None:
            return
        x = self._x(self._run.kill.at)
        yield _line(x, _TOP - 18, x, self._bottom - _GAP + 4, "kill")
        yield _text(x + 5, _TOP - 8, f"SIGKILL to worker {self._run.kill.worker}", "killed")


def _steps() -> Iterator[float]:
    """Seconds between two ticks: 0.5, 1, 2, 5, 10, 20, 50, ..."""
    yield 0.5
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def _style() -> Iterator[str]:
    yield "<style>"
    yield 'text { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif }'
    yield ".title { font-size: 18px; font-weight: 600 } .lock { font-weight: 600 }"
    yield ".slot { font-size: 11px; text-anchor: end } .tick { font-size: 11px; text-anchor: middle }"
    yield ".number { font-size: 10px; text-anchor: middle } .killed { font-weight: 600 }"
    yield ".rule { stroke-width: 1 } line.kill { stroke-width: 1.5; stroke-dasharray: 5 3 }"
    yield " ".join(f".dead-{worker} {{ fill: url(#hatch-{worker}) }}" for worker in _WORKERS)
    yield from _colours(_LIGHT)
    yield "@media (prefers-color-scheme: dark) {"
    yield from _colours(_DARK)
    yield "}</style><defs>"
    for worker in _WORKERS:
        yield (
            f'<pattern id="hatch-{worker}" width="6" height="6" patternUnits="userSpaceOnUse" '
            f'patternTransform="rotate(45)"><rect class="hatch {worker}" width="2" height="6"/></pattern>'
        )
    yield "</defs>"


def _colours(of: dict[str, str]) -> Iterator[str]:
    """Plain rules for each scheme: many viewers do not know CSS variables."""
    yield f".paper {{ fill: {of['paper']} }} .title, .lock, .legend {{ fill: {of['ink']} }}"
    yield f".slot, .tick {{ fill: {of['soft']} }} .lane {{ fill: {of['lane']} }}"
    yield f".wait {{ fill: {of['wait']} }} .rule {{ stroke: {of['rule']} }} .number {{ fill: {of['on']} }}"
    yield f".killed {{ fill: {of['kill']} }} line.kill {{ stroke: {of['kill']} }}"
    yield " ".join(f".{worker} {{ fill: {of[worker]} }}" for worker in _WORKERS)


def _rect(x: float, y: float, width: float, height: float, css: str) -> str:
    return f'<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2"/>'


def _line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    return f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, css: str) -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
