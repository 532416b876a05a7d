"""The demo's table: nothing is called kept without a measurement that shows it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from demo_runs import BEGAN, HISTORY, KILLED_AT, kept_run

from lock_interceptor.dev.demo.line import fairness, turns
from lock_interceptor.dev.demo.promises import Run, broken, evaluate, most_at_once
from lock_interceptor.dev.demo.record import Ask, Execution, Leave, Record
from lock_interceptor.ops import cli, trying

DONE, LEDGER, API, TENANT = "Everything is done", "ledger: at most 1", "api: at most 3", "tenant: at most 1"
TOKENS, FIRST_COME, WAITING = "Tokens rise", "First come", "Waiting fails"
SLOTS, HISTORIES = "A dead worker's slots", "Nothing is added"
ALL = (DONE, LEDGER, API, TENANT, TOKENS, FIRST_COME, WAITING, SLOTS, HISTORIES)


def verdicts(run: Run) -> dict[str, str]:
    """The verdict of each promise, by how its text begins."""
    rows = evaluate(run)
    return {name: next(row.verdict for row in rows if row.text.startswith(name)) for name in ALL}


def longer(lock: str) -> Callable[[Run], Run]:
    """Let each body of a lock run on for a while after its lock was given to the next."""

    def change(run: Run) -> Run:
        for execution in run.record.executions:
            if execution.lock == lock and execution.end is not None:
                execution.end += 0.4
        return run

    return change


def without_last_body(run: Run) -> Run:
    last = run.record.executions[-1]
    last.outcome = "failed"
    return run


def unordered_body(run: Run) -> Run:
    done = next(execution for execution in run.record.executions if execution.outcome == "done")
    done.order = "nobody-001"
    return run


def done_twice(run: Run) -> Run:
    done = next(execution for execution in run.record.executions if execution.outcome == "done")
    again = replace(done, start=BEGAN + 50, end=BEGAN + 51, token=10_000)
    run.record.executions.append(again)
    return run


def tokens_swapped(run: Run) -> Run:
    one, other = [ask for ask in run.record.asks if ask.lock == "api" and ask.token is not None][:5:4]
    one.token, other.token = other.token, one.token
    return run


def token_twice(run: Run) -> Run:
    one, other = [ask for ask in run.record.asks if ask.lock == "tenant[ann]" and ask.token is not None][:2]
    other.token = one.token
    return run


def overtaken(run: Run) -> Run:
    """The last in line gets the second grant, and the second one the last."""
    of_lock = [ask for ask in run.record.asks if ask.lock == "tenant[bob]"]
    granted = [ask for ask in of_lock if ask.token is not None]
    granted[1].order, granted[3].order = granted[3].order, granted[1].order
    return run


def late_slot(run: Run) -> Run:
    assert run.kill is not None
    run.kill.slots[0].back = KILLED_AT + 4.1
    return run


def lost_slot(run: Run) -> Run:
    assert run.kill is not None
    run.kill.slots[0].back = None
    return run


BREAKERS: dict[str, tuple[Callable[[Run], Run], str]] = {
    "body missing": (without_last_body, DONE),
    "body unordered": (unordered_body, DONE),
    "body twice": (done_twice, DONE),
    "nothing done": (lambda run: replace(run, record=Record()), DONE),
    "two in the mutex": (longer("ledger"), LEDGER),
    "four in a limit of three": (longer("api"), API),
    "two for one key": (longer("tenant[ann]"), TENANT),
    "tokens swapped": (tokens_swapped, TOKENS),
    "one token twice": (token_twice, TOKENS),
    "overtaken": (overtaken, FIRST_COME),
    "workflow failed": (lambda run: replace(run, completed=list(run.completed)[1:]), WAITING),
    "slot too late": (late_slot, SLOTS),
    "slot never back": (lost_slot, SLOTS),
    "event added": (
        lambda run: replace(run, histories={**run.histories, run.orders[0]: (*HISTORY, "TIMER_STARTED")}),
        HISTORIES,
    ),
    "event replaced": (
        lambda run: replace(run, histories={**run.histories, run.orders[0]: (*HISTORY[:-1], "MARKER")}),
        HISTORIES,
    ),
}

UNMEASURED: dict[str, tuple[Callable[[Run], Run], str]] = {
    "no orders": (lambda run: replace(run, orders=[], completed=[], record=Record()), DONE),
    "no mutex": (lambda run: replace(run, record=without(run.record, "ledger")), LEDGER),
    "no contention without locks": (lambda run: replace(run, unlocked=Record()), API),
    "no grants": (lambda run: replace(run, record=Record()), TOKENS),
    "nobody in line": (lambda run: replace(run, record=Record()), FIRST_COME),
    "nobody waited": (lambda run: replace(run, record=Record()), WAITING),
    "no kill": (lambda run: replace(run, kill=None), SLOTS),
    "a kill of nobody": (lambda run: replace(run, kill=replace(run.kill, slots=())), SLOTS),
    "no histories": (lambda run: replace(run, histories={}), HISTORIES),
    "nothing to compare with": (lambda run: replace(run, unlocked_histories=()), HISTORIES),
    "one history missing": (
        lambda run: replace(run, histories=dict(list(run.histories.items())[1:])),
        HISTORIES,
    ),
}


def without(record: Record, lock: str) -> Record:
    """The record without a lock's bodies."""
    return replace(record, executions=[each for each in record.executions if each.lock != lock])


def parted(ask: Ask) -> Leave:
    """That somebody stepped aside right after it was told to wait."""
    return Leave(order=ask.order, lock=ask.lock, worker=ask.worker, at=(ask.answered or 0) + 0.001)


def test_a_good_run_keeps_all_promises() -> None:
    """Of a run in which all went well each promise is called kept."""
    run = kept_run()
    assert verdicts(run) == dict.fromkeys(ALL, "kept")
    assert len(evaluate(run)) == len(ALL)
    assert not broken(evaluate(run))


@pytest.mark.parametrize("name", BREAKERS)
def test_a_broken_promise_is_reported_and_fails_the_command(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever goes wrong in a run, its promise is called broken, and the demo ends with status 1."""
    breaker, promise = BREAKERS[name]
    run = breaker(kept_run())
    assert verdicts(run)[promise] == "BROKEN"

    monkeypatch.setattr(trying, "run_demo", lambda **_: run)
    assert cli.main(["demo", "--svg", str(tmp_path / "timeline.svg")]) == cli.BROKEN
    lines = capsys.readouterr().out.splitlines()
    assert any(line.strip().startswith(promise) and "BROKEN" in line for line in lines)


@pytest.mark.parametrize("name", UNMEASURED)
def test_a_promise_without_a_measurement_is_not_kept(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where nothing was measured nothing is called kept, and the demo ends with status 1."""
    change, promise = UNMEASURED[name]
    run = change(kept_run())
    assert verdicts(run)[promise] == "not measured"

    monkeypatch.setattr(trying, "run_demo", lambda **_: run)
    assert cli.main(["demo", "--svg", str(tmp_path / "timeline.svg")]) == cli.BROKEN


def test_a_run_that_keeps_all_ends_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo ends with status 0 when all is kept, and names the timeline's path."""
    monkeypatch.setattr(trying, "run_demo", lambda **_: kept_run())
    svg = tmp_path / "timeline.svg"
    assert cli.main(["demo", "--svg", str(svg)]) == cli.OK
    assert str(svg) in capsys.readouterr().out
    assert svg.read_text().startswith("<svg")


def test_an_empty_table_is_no_success() -> None:
    """No promises at all are not all promises kept."""
    assert broken([])


def test_what_a_killed_worker_had_done_may_be_done_again() -> None:
    """A body that ended but could not be reported is repeated, which is no fault of the lock."""
    run = kept_run()
    done = next(execution for execution in run.record.executions if execution.outcome == "done")
    run.record.executions.append(replace(done, worker="B", start=BEGAN - 5, end=BEGAN - 4))
    row = evaluate(run)[0]
    assert row.verdict == "kept"
    assert "1 done but not reported before it" in row.measured


def test_bodies_that_touch_count_as_at_once() -> None:
    """Of two bodies the one that begins when the other ends is counted with it, and an endless one always."""

    def body(start: float, end: float | None) -> Execution:
        return Execution(order="o", lock="l", worker="A", token=1, slot=0, start=start, end=end)

    assert most_at_once([]) == 0
    assert most_at_once([body(0, 1), body(1.001, 2)]) == 1
    assert most_at_once([body(0, 1), body(1, 2)]) == 2
    assert most_at_once([body(0, None), body(5, 6), body(7, 8)]) == 2


def test_who_finds_another_slot_free_overtakes_nobody() -> None:
    """With two slots free the second in line may be served first, since the first has a slot as well."""
    run = kept_run()
    granted = [ask for ask in run.record.asks if ask.lock == "api" and ask.token is not None]
    granted[0].order, granted[1].order = granted[1].order, granted[0].order
    assert fairness(turns(run.record)["api"], 3, run.kill).overtaken == ()


@pytest.mark.parametrize("why", ["parked", "silent", "killed"])
def test_who_was_away_was_not_overtaken(why: str) -> None:
    """Who stepped aside, stopped asking or was killed did not stand in line, so nobody passed it."""
    run = overtaken(kept_run())
    bob = turns(run.record)["tenant[bob]"]
    assert len(fairness(bob, 1, run.kill).overtaken) > 0
    for turn in bob:
        if why == "parked":
            turn.left = [parted(ask) for ask in turn.asks]
        elif why == "silent":
            turn.asks = [replace(ask, answered=(ask.answered or 0) - 10) for ask in turn.asks]
        else:
            turn.asks = [replace(ask, worker="B") for ask in turn.asks]
    kill = replace(run.kill, at=BEGAN) if run.kill and why == "killed" else run.kill
    assert fairness(bob, 1, kill).overtaken == ()
