"""`Harmless` and what is built on it: whoever watches a lock cannot disturb it."""

import logging
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NoReturn

import opentelemetry.trace  # noqa: F401 - so that there is a tracer
import pytest
import structlog
from redis_tools import new_claim

from lock_interceptor import telemetry, tracing
from lock_interceptor.harmless import Harmless
from lock_interceptor.lease import Lease, clock
from lock_interceptor.metrics import GRANTED, HOLDING, WAITED, Recorder
from lock_interceptor.store import Waiting

ERRORS = [
    OSError(28, "No space left on device"),
    UnicodeEncodeError("ascii", "größe", 2, 3, "ordinal not in range"),
    ValueError("I/O operation on closed file"),
    SystemExit(1),
    GeneratorExit(),
    RecursionError(),
]


class Fatal(BaseException):
    """What a user's handler may raise, too."""


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the handler of last resort is given."""
    said: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    monkeypatch.setattr(logging, "lastResort", Listening())
    return iter([said])


@pytest.mark.parametrize("error", [*ERRORS, Fatal()], ids=lambda error: type(error).__name__)
def test_nothing_comes_out(stderr: Iterator[list[str]], error: BaseException) -> None:
    """Whatever is raised inside is held back, and reported once however often it happens."""
    harmless, said = Harmless("logging"), next(stderr)
    for _ in range(3):
        with harmless:
            raise error
    assert len(said) == 1
    assert "logging failed" in said[0]
    assert type(error).__name__ in said[0]


def test_ctrl_c_comes_out() -> None:
    """Somebody who interrupts the process is heard, also while something is logged."""
    with pytest.raises(KeyboardInterrupt), Harmless("logging"):
        raise KeyboardInterrupt


def test_an_interrupt_elsewhere_does_not() -> None:
    """A signal reaches the main thread only, so what looks like one in another thread is a fault."""
    ended = []

    def work() -> None:
        with Harmless("logging"):
            raise KeyboardInterrupt
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended == [True]


@pytest.mark.parametrize("broken", ["raises", "missing", "unprintable"])
def test_nobody_is_left_to_tell(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """The report itself may fail, since stderr is closed, or the error cannot be shown: nothing comes out."""

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise ValueError

    if broken == "missing":
        monkeypatch.setattr(logging, "lastResort", None)
    elif broken == "raises":
        monkeypatch.setattr(sys, "stderr", None)
        monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(stream=_Closed()))  # type: ignore[arg-type]
    with Harmless("logging"):
        raise Unprintable if broken == "unprintable" else OSError


class _Closed:
    def write(self, text: str) -> NoReturn:
        raise SystemExit(text)


def _events() -> list[tuple[str, Any]]:
    """Each function of `telemetry` with arguments for it."""
    claim, lease = new_claim(), Lease("db", 7, 0, expires=clock() + 60, deadline=clock() + 600)
    state = Waiting(place=1, ahead=0, held=1, mean_hold=timedelta(seconds=1))
    arguments: dict[str, Any] = {
        "claim": claim,
        "lease": lease,
        "state": state,
        "error": OSError("no"),
        "back_in": 1.0,
        "since": clock(),
        "waited": 0.1,
        "waited_in_all": 0.2,
        "why": "gone",
        "activity": "pick",
        "waiters": 3,
        "where": "redis:6379",
        "traceback": "",
        "effect": "none",
        "seconds": 1.0,
        "steps": 1,
    }
    functions = [
        function
        for name, function in vars(telemetry).items()
        if getattr(function, "__module__", "") == telemetry.__name__
        and not name.startswith("_")
        and callable(function)
        and hasattr(function, "__code__")
    ]
    return [
        (
            function.__name__,
            lambda function=function: function(
                **{name: arguments[name] for name in function.__annotations__ if name != "return"}
            ),
        )
        for function in functions
    ]


@pytest.mark.parametrize(("name", "call"), _events(), ids=[name for name, _ in _events()])
def test_no_event_raises(monkeypatch: pytest.MonkeyPatch, name: str, call: Any) -> None:
    """Each event passes in silence when the log sink and the tracer raise."""
    reached = []

    def broken(*_: object, **__: object) -> NoReturn:
        reached.append(name)
        raise Fatal

    monkeypatch.setattr(sys.modules["opentelemetry.trace"], "get_current_span", broken)
    old = structlog.get_config()
    structlog.configure(processors=[broken])
    try:
        call()
    finally:
        structlog.configure(**old)
    counted_only = {"holding", "held", "waiting_ended", "request_failed"}
    assert bool(reached) is (name not in counted_only)


class _BrokenMeter:
    """Raises when it is used or, if told so, when an instrument is made."""

    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once

    def __getattr__(self, name: str) -> Any:
        def call(*_: object, **__: object) -> Any:
            if self._at_once or name in {"add", "record", "set"}:
                raise Fatal
            return self

        return call


@pytest.mark.parametrize("at_once", [False, True])
def test_a_meter_that_raises(*, at_once: bool) -> None:
    """Counting passes in silence, whether instruments cannot be made or cannot be used."""
    recorder = Recorder(_BrokenMeter(at_once=at_once), "db")  # type: ignore[arg-type]
    recorder.count(GRANTED)
    recorder.observe(WAITED, 1.0)
    recorder.change(HOLDING, 1)
    tracing.event("lock.lost")
