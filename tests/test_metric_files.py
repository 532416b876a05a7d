"""The dashboard and the alert rules in ``docs/`` are about metrics that exist, and about all of them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lock_interceptor import metrics

DOCS = Path(__file__).parent.parent / "docs"
ALERTS = (DOCS / "alerts.yml").read_text("utf-8")
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
RULES = re.split(r"^      - alert: ", ALERTS, flags=re.MULTILINE)[1:]

SELECTOR = re.compile(r'lock_interceptor_\w+?(?=[({"\[]|_(?:(?:milli)?seconds_)?bucket)(?:\(\S+?\)\?)?\w*')
LABELS = {*metrics.LABELS, "reason", "le"}


def series(metric: metrics.Metric) -> set[str]:
    """Under which names exporters show a metric, of which the queries have to find each."""
    if metric.kind == "gauge":
        return {metric.name}
    if metric.kind == "counter":
        return {metric.name, f"{metric.name}_total"}
    return {f"{metric.name}{unit}_bucket" for unit in ("", "_milliseconds", "_seconds")}


def found_by(query: str) -> set[str]:
    """The series that a query's selectors match."""
    patterns = SELECTOR.findall(query)
    known = set().union(*(series(metric) for metric in metrics.ALL))
    found = {name for pattern in patterns for name in known if re.fullmatch(pattern, name)}
    for pattern in patterns:
        assert any(re.fullmatch(pattern, name) for name in known), f"no metric is called {pattern}"
    return found


def queries(panel: dict[str, Any]) -> list[str]:
    """What a panel asks Prometheus for."""
    return [target["expr"] for target in panel["targets"]]


def test_the_dashboard_shows_every_metric() -> None:
    """Whatever is counted can be seen, under every name that an exporter gives it."""
    shown = set().union(*(found_by(query) for panel in PANELS for query in queries(panel)))
    assert shown == set().union(*(series(metric) for metric in metrics.ALL))


def test_the_dashboard_is_whole() -> None:
    """Each panel has a title, a place of its own, says what it means, and uses the variables there are."""
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert {"datasource", "lock"} <= variables
    places = set()
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"]
        assert panel["datasource"]["uid"] == "${datasource}"
        grid = panel["gridPos"]
        tiles = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not places & tiles
        assert grid["x"] + grid["w"] <= 24
        places |= tiles
        for query in queries(panel):
            assert query.count('lock_name=~"$lock"') == query.count("lock_interceptor_")
            assert set(re.findall(r"\$(\w+)", query)) <= variables | {"__rate_interval", "__range"}
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    used = {query for variable in DASHBOARD["templating"]["list"] for query in [variable.get("definition")]}
    assert f"label_values({metrics.HOLDING.name}, lock_name)" in used


@pytest.mark.parametrize("rule", RULES, ids=[rule.split("\n")[0] for rule in RULES])
def test_an_alert_is_whole(rule: str) -> None:
    """Each rule asks for a metric under every name it may have, and says what is up and what to do."""
    _, _, tail = rule.partition("expr: >\n")
    expression, _, _ = tail.partition("\n        labels:")
    expression, _, _ = expression.partition("\n        for:")
    found = found_by(expression)
    asked_for = [metric for metric in metrics.ALL if series(metric) & found]
    assert asked_for
    assert found == set().union(*(series(metric) for metric in asked_for))
    assert expression.count("(") == expression.count(")")
    for grouped in re.findall(r"by \(([^)]+)\)", expression):
        assert set(grouped.split(", ")) <= LABELS
    assert re.search(r'^          summary: "[^"]+\."$', rule, re.MULTILINE)
    assert re.search(r"^          remedy: >\n            \S", rule, re.MULTILINE)
    assert re.search(r"^          severity: (critical|warning)$", rule, re.MULTILINE)
    for label in re.findall(r"\$labels\.(\w+)", rule):
        assert re.search(rf"by \([^)]*\b{label}\b", expression)


def test_there_is_an_alert_for_what_goes_wrong() -> None:
    """Lost locks, no Redis, long waits, nothing granted, no replica, stepping clocks."""
    names = [rule.split("\n")[0] for rule in RULES]
    assert names == [
        "LockLost",
        "LockStoreUnreachable",
        "LockWaitsLong",
        "LockNothingGranted",
        "LockNotReplicated",
        "LockServerClockStepped",
    ]
    asked_for = set().union(*(found_by(rule) for rule in RULES))
    troubles = (metrics.LOST, metrics.STORE_ERRORS, metrics.NOT_REPLICATED, metrics.CLOCK_STEPS)
    assert set().union(*(series(metric) for metric in troubles)) <= asked_for
