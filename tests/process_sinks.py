"""Watching that is broken: a log sink, a meter or a tracer that raises at one event."""

# ruff: noqa: ARG002 - the signatures are those of the SDK

import contextlib
import io
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import structlog
from opentelemetry import trace
from temporalio import activity
from temporalio.common import (
    MetricAttributes,
    MetricCounter,
    MetricGauge,
    MetricHistogramTimedelta,
    MetricMeter,
)

REASON = "this sink is broken"
ERRORS: tuple[Callable[[], Exception], ...] = (
    lambda: OSError(28, f"No space left on device: {REASON}"),
    lambda: ValueError(f"I/O operation on closed file: {REASON}"),
    lambda: UnicodeEncodeError("ascii", "größe", 2, 3, REASON),
    lambda: RuntimeError(REASON),
)


@dataclass
class Broken:
    """What has raised so far."""

    event: str
    """The event, metric or call at which it raises; ``*`` is each one."""
    seen: list[str] = field(default_factory=list)
    """All events, for a control that breaks nothing."""
    raised: int = 0
    errors: "Iterator[Callable[[], Exception]]" = field(default_factory=lambda: itertools.cycle(ERRORS))
    said: io.StringIO = field(default_factory=io.StringIO)
    """What came on standard error meanwhile."""

    def hit(self, event: str) -> None:
        """An event has come to this sink."""
        self.seen.append(event)
        if self.event in (event, "*"):
            self.raised += 1
            error = next(self.errors)()
            raise error

    @property
    def reports(self) -> int:
        """How many failures of the sink were told on standard error."""
        return self.said.getvalue().count(REASON)


@contextlib.contextmanager
def broken(sink: str, event: str) -> Iterator[Broken]:
    """While entered, this sink raises at this event; with no event it just notes them."""
    found = Broken(event)
    with contextlib.redirect_stderr(found.said), SINKS[sink](found):
        yield found


@contextlib.contextmanager
def _log(found: Broken) -> Iterator[None]:
    def sink(_: Any, __: str, event: Mapping[str, Any]) -> Any:
        found.hit(event["event"])
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[sink])
    try:
        yield
    finally:
        structlog.configure(**before)


@contextlib.contextmanager
def _meter(found: Broken) -> Iterator[None]:
    def metric_meter() -> MetricMeter:
        found.hit("metric_meter()")
        return _Meter(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(activity, "metric_meter", metric_meter)
        yield


@contextlib.contextmanager
def _tracer(found: Broken) -> Iterator[None]:
    with trace.use_span(_Span(found), record_exception=False, set_status_on_exception=False):
        yield


SINKS = {"log": _log, "meter": _meter, "tracer": _tracer}


class _Instrument(MetricCounter, MetricGauge, MetricHistogramTimedelta):
    """Any kind of instrument. That it exists is no event: not a zero with which it begins."""

    def __init__(self, name: str, found: Broken) -> None:
        self._name, self._found, self._used = name, found, False

    name = description = unit = ""

    def with_additional_attributes(self, additional_attributes: MetricAttributes) -> Any:
        return self

    def add(self, value: int, additional_attributes: MetricAttributes | None = None) -> None:
        if value:
            self._found.hit(self._name)

    def set(self, value: float, additional_attributes: MetricAttributes | None = None) -> None:
        if self._used:
            self._found.hit(self._name)
        self._used = True

    def record(self, value: timedelta, additional_attributes: MetricAttributes | None = None) -> None:
        self._found.hit(self._name)


class _Meter(MetricMeter):
    """Makes them."""

    def __init__(self, found: Broken) -> None:
        self._found = found

    def _create(self, name: str, *_: Any, **__: Any) -> Any:
        self._found.hit("create")
        return _Instrument(name, self._found)

    create_counter = create_gauge = create_gauge_float = create_histogram = _create
    create_histogram_float = create_histogram_timedelta = _create

    def with_additional_attributes(self, additional_attributes: MetricAttributes) -> MetricMeter:
        return self


class _Span(trace.NonRecordingSpan):
    """A span that records."""

    def __init__(self, found: Broken) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self._found = found

    def is_recording(self) -> bool:
        self._found.hit("is_recording()")
        return True

    def add_event(self, name: str, *_: Any, **__: Any) -> None:
        self._found.hit(name)
