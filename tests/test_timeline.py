"""The demo's timeline: well-formed, complete, to scale, and readable on light and dark pages."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from demo_runs import BEGAN, KILLED_AT, LOCKS, kept_run

from lock_interceptor.dev.demo.plan import Lock
from lock_interceptor.dev.demo.promises import Run
from lock_interceptor.dev.demo.record import Record
from lock_interceptor.dev.demo.timeline import timeline

SVG = "{http://www.w3.org/2000/svg}"


def drawn(run: Run) -> ET.Element:
    """The timeline as a tree, which it is only if it is well-formed."""
    return ET.fromstring(timeline(run))  # noqa: S314 - our own text


def of_class(element: ET.Element, css: str) -> list[ET.Element]:
    """All parts with a class."""
    return [part for part in element.iter() if css in part.get("class", "").split()]


def lock_group(svg: ET.Element, label: str) -> ET.Element:
    """The part of the picture that belongs to a lock."""
    return next(group for group in svg.iter(f"{SVG}g") if group.get("id") == label)


def number(part: ET.Element, attribute: str) -> float:
    """An attribute as a number."""
    return float(part.attrib[attribute])


def text_of(svg: ET.Element) -> str:
    """All text, whether drawn or shown when pointed at."""
    return " ".join(svg.itertext())


def scale(svg: ET.Element) -> tuple[float, float]:
    """Where the axis begins, and how wide a second is."""
    first, second = of_class(svg, "tick")[:2]
    seconds = float((second.text or "").removesuffix(" s"))
    return number(first, "x"), (number(second, "x") - number(first, "x")) / seconds


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.label)
def test_each_slot_has_a_lane_and_each_execution_a_bar(lock: Lock) -> None:
    """A lock has as many lanes as slots, and as many bars as bodies ran under it."""
    run = kept_run()
    group = lock_group(drawn(run), lock.label)
    assert len(of_class(group, "lane")) == lock.limit
    executions = [each for each in run.record.executions if each.lock == lock.label]
    assert len(executions) >= 4
    assert len(of_class(group, "bar")) == len(executions)
    assert lock.label in text_of(group)


def test_bars_are_to_scale() -> None:
    """A bar begins and ends where the time axis says that its body did."""
    run = kept_run()
    svg = drawn(run)
    zero, second = scale(svg)
    bars = of_class(lock_group(svg, "tenant[ann]"), "bar")
    executions = sorted(
        (each for each in run.record.executions if each.lock == "tenant[ann]"), key=lambda each: each.start
    )
    for bar, execution in zip(sorted(bars, key=lambda bar: number(bar, "x")), executions, strict=True):
        assert number(bar, "x") == pytest.approx(zero + (execution.start - BEGAN) * second, abs=0.2)
        assert number(bar, "width") == pytest.approx(0.5 * second, abs=0.8)


def test_the_kill_is_marked_and_the_dead_slot_hatched_until_its_lease_ends() -> None:
    """The cut-off bar ends at the mark of the kill, and its hatched rest lasts as long as its lease did."""
    run = kept_run()
    svg = drawn(run)
    (mark,) = [line for line in of_class(svg, "kill") if line.tag == f"{SVG}line"]
    (rest,) = of_class(lock_group(svg, "ledger"), "dead-b")
    zero, second = scale(svg)
    assert number(rest, "x") == pytest.approx(number(mark, "x1"), abs=0.2)
    assert number(mark, "x1") == pytest.approx(zero + (KILLED_AT - BEGAN) * second, abs=0.2)
    assert number(rest, "width") == pytest.approx(2.5 * second, abs=0.2)
    assert "SIGKILL to worker B" in text_of(svg)


def test_the_legend_names_each_worker() -> None:
    """Each worker has a colour of its own in the legend, and the killed one is called so."""
    svg = drawn(kept_run())
    legend = [part.text for part in of_class(svg, "legend")]
    assert legend[:3] == ["worker A", "worker B, killed", "worker C"]
    assert all(of_class(svg, colour) for colour in "abc")


def test_waiting_is_shown_with_its_peak() -> None:
    """Each lock shows how many stood in line at most."""
    group = lock_group(drawn(kept_run()), "api")
    assert len(of_class(group, "wait")) == 1
    assert "waiting, up to 11" in text_of(group)


def test_both_colour_schemes_give_each_class_a_colour() -> None:
    """The dark scheme changes every colour that the light one sets."""
    style = drawn(kept_run()).findtext(f"{SVG}style") or ""
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for css in ("paper", "title", "lane", "wait", "rule", "kill", "a", "b", "c"):
        assert f".{css}" in light
        assert f".{css}" in dark


def test_names_cannot_break_the_picture() -> None:
    """Whatever is in a lock's name, it is drawn as it is."""
    lock = Lock('<&">', 1)
    svg = drawn(kept_run((lock,)))
    assert len(of_class(lock_group(svg, lock.label), "lane")) == 1
    assert lock.label in [part.text for part in of_class(svg, "lock")]


@pytest.mark.parametrize("seconds", [0.5, 20, 3000])
def test_the_axis_fits_any_length(seconds: float) -> None:
    """There are a few ticks on the axis, and not hundreds, however long the run was."""
    run = kept_run()
    run.record.executions[-1].end = BEGAN + seconds
    run = replace(run, record=replace(run.record, executions=run.record.executions[-1:]), kill=None)
    assert 2 <= len(of_class(drawn(run), "tick")) <= 15


def test_a_run_in_which_nothing_happened_can_be_drawn() -> None:
    """An empty run without a kill is drawn with empty lanes."""
    svg = drawn(replace(kept_run(), record=Record(), kill=None))
    assert len(of_class(svg, "lane")) == sum(lock.limit for lock in LOCKS)
    assert of_class(svg, "bar") == []
