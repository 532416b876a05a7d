"""Tells the span of the running activity what happens to its locks.

A span is there if an interceptor further out has begun one, as that of ``temporalio.contrib.opentelemetry``
does. OpenTelemetry is no dependency of ours.
"""

from __future__ import annotations

import sys
from typing import Any

from lock_interceptor.harmless import Harmless

_harmless = Harmless("tracing")


def event(name: str, **facts: Any) -> None:
    """Add an event to the current span, if there is one. Never raises."""
    # whoever began a span has imported this, and nobody else should pay for it
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return
    with _harmless:
        span = trace.get_current_span()
        if span.is_recording():
            span.add_event(name, facts)
