"""What we print, log or put into messages cannot drive a terminal or forge a line of a log."""

import io
from datetime import timedelta

import pytest
import structlog
from hostile_text import anything, quiet
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ResponseError
from rich.console import Console

from lock_interceptor import Lease, LockError, current_lease
from lock_interceptor.dev.demo.plan import LOCKS
from lock_interceptor.dev.demo.view import LiveView, Snapshot
from lock_interceptor.lease import clock, held_leases, printable
from lock_interceptor.redis_store.errors import translated
from lock_interceptor.store import HolderState, LockId, LockState, Party, WaiterState, Waiting
from lock_interceptor.waiting import explain

CONTROLS = "a\x1b[2J\x1b]0;owned\x07\r\nb\x9b31m\u202ec\x00"
SHOWN = r"a\x1b[2J\x1b]0;owned\x07\r\nb\x9b31m\u202ec\x00"
PARTY = Party(workflow=CONTROLS, workflow_type=CONTROLS, activity=CONTROLS, activity_id=CONTROLS)


@quiet
@given(anything)
def test_printable_text_is_left_alone_and_any_other_is_escaped(text: str) -> None:
    """Escapes replace what no terminal should get; done twice it is as done once."""
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert (shown == text) == text.isprintable()


def test_names_and_keys_are_shown_escaped() -> None:
    """A lock's name and key in messages and logs have no control characters, and are otherwise as given."""
    lock = LockId("app", CONTROLS, "schön 🔒\n")
    lease = Lease(CONTROLS, 1, 0, key="\n", expires=clock() + 9, deadline=clock() + 9)
    assert str(lock) == rf"{SHOWN}[schön 🔒\n]"
    assert lease.label == rf"{SHOWN}[\n]"
    assert repr(lease).isprintable()


@quiet
@given(name=anything, key=st.none() | anything)
def test_a_lease_is_found_by_the_name_that_it_was_given(name: str, key: str | None) -> None:
    """What is escaped for people is no obstacle to code: the name itself, and with the key, still match."""
    other = Lease(f"{name}-", 1, 0, key=key, expires=clock() + 9, deadline=clock() + 9)
    lease = Lease(name, 1, 0, key=key, expires=clock() + 9, deadline=clock() + 9)
    held = held_leases.set((lease, other))
    try:
        assert current_lease(name) is lease
        assert current_lease(name if key is None else f"{name}[{key}]") is lease
    finally:
        held_leases.reset(held)


def test_an_error_of_a_server_is_shown_escaped() -> None:
    """What a server says comes into messages on one line and without control characters."""
    with pytest.raises(LockError) as raised, translated("here"):
        raise ResponseError(f"ERR \x1b[2J\n{CONTROLS}")
    assert str(raised.value).isprintable()


def _state() -> LockState:
    seconds = timedelta(seconds=1)
    holder = HolderState(owner="o", token=1, slot=0, lease_left=seconds, held_for=seconds, party=PARTY)
    return LockState(
        holders=(holder,), waiters=(WaiterState(waiter="w", present=True, party=PARTY),), waiting=1
    )


def test_who_holds_is_explained_in_one_clean_line() -> None:
    """The failure that a waiting activity shows has no control characters of a holder's workflow id in it."""
    waiting = Waiting(place=1, ahead=0, held=1, holders=_state().holders)
    assert explain(LockId("app", CONTROLS), 1, waiting).isprintable()


def test_parties_are_escaped_once_for_logs_messages_and_redis() -> None:
    """Whoever prints a workflow id, here or in Redis, prints no control characters."""
    assert str(PARTY).isprintable()
    assert set(PARTY.as_dict().values()) == {SHOWN, 1, ""}
    assert Party(**PARTY.as_dict()) == PARTY
    out = io.StringIO()
    logger = structlog.wrap_logger(
        structlog.PrintLogger(out), processors=[structlog.dev.ConsoleRenderer(colors=False)]
    )
    logger.info("lock.acquired", lock=str(LockId("app", CONTROLS)), **PARTY.as_dict())
    assert out.getvalue().removesuffix("\n").isprintable()


def test_the_demo_obeys_no_workflow_id() -> None:
    """The picture does not pass on what a workflow id would tell a terminal."""
    out = io.StringIO()
    console = Console(file=out, width=200, force_terminal=True)
    with LiveView(console) as view:
        view.show(Snapshot(seconds=1, done=0, total=1, states=dict.fromkeys(LOCKS, _state())))
    assert "owned" in out.getvalue()
    assert not [told for told in ("\x1b]0;", "\x07", "\x9b", "\u202e") if told in out.getvalue()]
