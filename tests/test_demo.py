"""The demo for real: servers, workers, a kill, the table, the picture; and nothing left behind."""

import re
import signal
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from command_line import Running, alive, running
from demo_runs import kept_run
from rich.console import Console
from servers import wait_until

from lock_interceptor.dev.demo.journal import Journal, JournalReader
from lock_interceptor.dev.demo.plan import LOCKS, MAX_ORDERS, MIN_ORDERS, demo_settings, make_orders
from lock_interceptor.dev.demo.view import LiveView, PlainView, Snapshot, Worker
from lock_interceptor.ops import cli
from lock_interceptor.store import HolderState, LockState, Party, WaiterState

ORDERS = 60


@dataclass(frozen=True)
class Outcome:
    """What a run of the demo left."""

    status: int
    output: str
    errors: str
    svg: str
    left_behind: set[int]
    files: list[Path]

    def measured(self, promise: str) -> str:
        """The second column of a row that was kept, all its lines."""
        lines = iter(self.output.splitlines())
        row = next(line for line in lines if line.strip().startswith(promise))
        assert row.rstrip().endswith("kept"), row
        columns = [re.split(r"\s{2,}", row.strip())[1]]
        for line in lines:
            if not line.startswith("  "):
                break
            columns.append(line.strip())
        return " ".join(columns)

    @property
    def cut_off(self) -> int:
        """How many bodies the kill cut off."""
        return int(re.findall(r"(\d+) cut off", self.measured("Everything is done"))[0])

    @property
    def run_again(self) -> int:
        """How many bodies were run again, those included that ended but were not reported in time."""
        return sum(map(int, re.findall(r", (\d+)", self.measured("Everything is done"))))


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One run from start to end."""
    temporary, folder = tmp_path_factory.mktemp("temporary"), tmp_path_factory.mktemp("folder")
    svg = folder / "picture.svg"
    with running("demo", "--workflows", str(ORDERS), "--svg", str(svg), temporary=temporary) as demo:
        demo.read_until("SIGKILL to worker")
        family = demo.family()
        demo.read_until("timeline:")
        status = demo.process.wait(30)
        assert len(family) >= 6  # two servers and four workers, at the least
        return Outcome(
            status,
            "\n".join(demo.lines),
            demo.errors(),
            svg.read_text(),
            alive(family),
            list(temporary.iterdir()),
        )


def test_a_run_keeps_every_promise(outcome: Outcome) -> None:
    """A demo ends with status 0, with every row kept and nothing to complain about."""
    assert outcome.status == cli.OK, outcome.output + outcome.errors
    assert outcome.errors == ""
    assert len(re.findall(r" kept\s*$", outcome.output, re.MULTILINE)) == 9


def test_the_figures_in_the_table_are_measured(outcome: Outcome) -> None:
    """The table counts every workflow; limits are reached and not exceeded, as they are without locks."""
    assert outcome.measured("Everything is done").startswith(f"{ORDERS} of {ORDERS} done")
    for name, limit in (("ledger", 1), ("api", 3), ("tenant", 1)):
        most, without = map(int, re.findall(r"(\d+)(?: at once|$|;)", outcome.measured(name))[:2])
        assert most == limit
        assert without > limit
    grants, locks, wrong = map(int, re.findall(r"\d+", outcome.measured("Tokens rise")))
    assert (grants, locks, wrong) == (ORDERS + outcome.run_again, len(LOCKS), 0)
    judged, passed = map(int, re.findall(r"\d+", outcome.measured("First come")))
    assert 0 < judged <= grants
    assert passed == 0
    slots = re.findall(r"slot \d after (\d+\.\d) s", outcome.measured("A dead worker's slots"))
    assert len(slots) >= outcome.cut_off >= 1
    assert all(1.0 < float(seconds) < 4.0 for seconds in slots)
    assert outcome.measured("Nothing is added") == f"0 events added to {ORDERS} workflows of 11 events"


def test_the_timeline_shows_the_run(outcome: Outcome) -> None:
    """The timeline has a lane for each slot of each lock, a bar for each body, and the hatched dead ones."""
    svg = ET.fromstring(outcome.svg)  # noqa: S314 - our own text
    groups = {
        group.get("id"): group for group in svg.iter("{http://www.w3.org/2000/svg}g") if group.get("id")
    }
    assert set(groups) == {lock.label for lock in LOCKS}
    classes = [part.get("class", "") for group in groups.values() for part in group.iter()]
    assert classes.count("lane") == sum(lock.limit for lock in LOCKS)
    assert sum(css.startswith("bar ") for css in classes) == ORDERS + outcome.run_again
    assert sum(css.startswith("dead-") for css in classes) == outcome.cut_off


def test_a_run_leaves_nothing_behind(outcome: Outcome) -> None:
    """After a demo no process of it runs, and its temporary files are gone."""
    assert outcome.left_behind == set()
    assert outcome.files == []


def _with_workers(demo: Running) -> set[int]:
    """Its processes, once workers have been started."""
    wait_until(lambda: len(demo.family()) >= 6, "servers and workers", 30)
    return demo.family()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_demo_leaves_no_process(how: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C or SIGTERM end the demo with status 130 and all that it started; SIGKILL ends the same."""
    with running("demo", "--svg", str(tmp_path / "picture.svg"), temporary=tmp_path) as demo:
        demo.read_until("without locks")
        family = _with_workers(demo)
        demo.send(how)
        status = demo.process.wait(10)
    wait_until(lambda: not alive(family), f"the end of {family}", 5)
    assert status == (-how if how is signal.SIGKILL else cli.INTERRUPTED)
    if how is not signal.SIGKILL:  # which nobody can clean up after
        assert list(tmp_path.iterdir()) == []


def test_what_goes_wrong_leaves_logs_and_says_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """When a worker ends by itself the demo ends with status 1, says what it said, and where the rest is."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("lock_interceptor.dev.demo.crew.MODULE", "no_such_module")
    assert cli.main(["demo", "--plain", "--svg", str(tmp_path / "picture.svg")]) == cli.BROKEN
    errors = capsys.readouterr().err
    assert "ended by itself" in errors
    assert "No module named no_such_module" in errors
    (folder,) = tmp_path.iterdir()
    assert str(folder) in errors
    assert any(file.suffix == ".log" for file in folder.iterdir())


@pytest.mark.parametrize("count", [MIN_ORDERS, 61, MAX_ORDERS])
def test_the_plan_is_repeatable_and_the_same_without_locks(count: int) -> None:
    """One seed makes one plan of so many orders, which without locks differs in ids and queue alone."""
    orders = make_orders(count, 1, locked=True)
    assert orders == make_orders(count, 1, locked=True)
    assert orders != make_orders(count, 2, locked=True)
    assert len({order.id for order in orders}) == count
    assert len({order.activity for order in orders}) == 3
    plain = make_orders(count, 1, locked=False)
    assert [(order.activity, order.tenant, order.seconds) for order in orders] == [
        (order.activity, order.tenant, order.seconds) for order in plain
    ]
    assert {order.id for order in orders} & {order.id for order in plain} == set()
    assert sum(order.seconds for order in orders) < 200


def test_the_demo_owes_nothing_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the variables say, the demo's locks are on, and in the demo's own server."""
    monkeypatch.setenv("IS_LOCKING_DISABLED", "true")
    monkeypatch.setenv("REDIS_SENTINEL_HOSTS", "elsewhere:26379")
    monkeypatch.setenv("LOCK_LEASE_SECONDS", "nonsense")
    settings = demo_settings("redis://127.0.0.1:1/0")
    assert not settings.disabled
    assert settings.redis_sentinel_hosts == ()
    assert settings.lease.total_seconds() == 3


def test_a_journal_is_read_line_by_whole_line(tmp_path: Path) -> None:
    """A reader gets each event once, and a line that is cut off not before it is whole."""
    path = tmp_path / "journal"
    reader = JournalReader(path)
    assert reader.read() == []
    journal = Journal(path)
    journal.write("start", order="a")
    with path.open("ab") as file:
        file.write(b'{"event":')
        file.flush()
        assert [line["event"] for line in reader.read()] == ["start"]
        assert reader.read() == []
        file.write(b'"end"}\n')
    assert reader.read() == [{"event": "end"}]


def _snapshot() -> Snapshot:
    """One holder alive, one dead, two waiters."""

    def holder(pid: int, slot: int) -> HolderState:
        return HolderState(
            owner=str(slot),
            token=slot,
            slot=slot,
            lease_left=kept_run().lease,
            held_for=kept_run().lease / 2,
            party=Party(workflow=f"order-{slot:03}", worker=f"{pid}@host"),
        )

    line = tuple(
        WaiterState(waiter=str(pid), present=True, party=Party(workflow="order-077", worker=f"{pid}@host"))
        for pid in (1, 2)
    )
    state = LockState(holders=(holder(1, 0), holder(2, 2)), waiters=line, waiting=17)
    return Snapshot(
        seconds=4.5,
        done=23,
        total=150,
        states={LOCKS[1]: state},
        workers=[Worker("A", 1, 1, killed=False), Worker("B", 2, 0, killed=True)],
    )


def test_the_live_view_shows_holders_waiters_and_the_dead() -> None:
    """The picture names who holds each slot on which worker, who is dead, how many wait and who is next."""
    output = StringIO()
    with LiveView(Console(file=output, force_terminal=True, width=110, color_system=None)) as view:
        view.say("something happened", 4.2)
        view.show(_snapshot())
    shown = output.getvalue()
    for part in ("23/150", "4.5 s", "order-000 on A", "free", "order-002, dead", "3.0 s left", "17", "077"):
        assert part in shown
    assert "B killed" in shown
    assert shown.rstrip().endswith("4.2 s  something happened")


def test_the_plain_view_prints_lines() -> None:
    """Without a terminal there is one line a second, and each thing that was said."""
    output = StringIO()
    with PlainView(Console(file=output, width=150)) as view:
        for _ in range(10):
            view.show(_snapshot())
        view.say("[brackets] are no markup")
    assert output.getvalue().splitlines() == [
        "  4.5 s   23/150 done: api 2/3 held 17 waiting",
        "[brackets] are no markup",
    ]
    assert "\x1b" not in output.getvalue()
