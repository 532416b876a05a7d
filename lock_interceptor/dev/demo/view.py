"""What a person sees of the demo: a picture that moves, or lines where that is not possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lock_interceptor.dev.demo.plan import Lock
from lock_interceptor.dev.demo.promises import Promise, Verdict
from lock_interceptor.store import HolderState, LockState, Party

COLOURS = {"A": "bright_blue", "B": "orange1", "C": "green3"}
_VERDICTS: dict[Verdict, str] = {"kept": "bold green", "BROKEN": "bold red", "not measured": "bold yellow"}
_PLAIN_WIDTH = 150
_PLAIN_EVERY = 1.0
_BAR = 14
_MESSAGES = 5


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as the display shows it."""

    name: str
    pid: int
    bodies: int
    killed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One moment of the run."""

    seconds: float
    """Since the run began."""
    done: int
    total: int
    states: Mapping[Lock, LockState] = field(default_factory=dict)
    workers: Sequence[Worker] = ()

    def worker_of(self, party: Party) -> Worker | None:
        """The worker whose process holds or waits."""
        pid = party.worker.partition("@")[0]
        return next((worker for worker in self.workers if str(worker.pid) == pid), None)


class View(Protocol):
    """Where the demo tells what goes on."""

    def say(self, text: str, seconds: float | None = None) -> None:
        """Tell of something that happened, so many seconds into the run."""

    def show(self, snapshot: Snapshot) -> None:
        """Show how things stand."""


class PlainView:
    """Lines, about one a second: for logs, pipes and CI."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def say(self, text: str, seconds: float | None = None) -> None:
        """See `View`."""
        self._console.print(_when(text, seconds), soft_wrap=True, highlight=False, markup=False)

    def show(self, snapshot: Snapshot) -> None:
        """See `View`."""
        if snapshot.seconds >= self._next:
            self._next = snapshot.seconds + _PLAIN_EVERY
            locks = ", ".join(
                f"{lock.label} {len(state.holders)}/{lock.limit} held {state.waiting} waiting"
                for lock, state in snapshot.states.items()
            )
            self.say(f"{snapshot.done:3}/{snapshot.total} done: {locks}", snapshot.seconds)


class LiveView:
    """The picture. What was said stays below it."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._messages: list[str] = []
        self._snapshot: Snapshot | None = None
        self._longest_line = 1

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Take the picture away, and leave what was said."""
        self._live.stop()
        for message in self._messages:
            self._live.console.print(message, highlight=False, markup=False)

    def say(self, text: str, seconds: float | None = None) -> None:
        """See `View`."""
        self._messages.append(_when(text, seconds))
        self._draw()

    def show(self, snapshot: Snapshot) -> None:
        """See `View`."""
        self._snapshot = snapshot
        self._draw()

    def _draw(self) -> None:
        messages = Text(
            "\n".join(self._messages[-_MESSAGES:]), style="dim", overflow="ellipsis", no_wrap=True
        )
        if self._snapshot is None:
            self._live.update(messages, refresh=True)
            return
        snapshot = self._snapshot
        body = Group(
            self._progress(snapshot),
            self._workers(snapshot),
            Text(),
            self._locks(snapshot),
            Text(),
            messages,
        )
        title = "[bold]lock-interceptor demo[/bold]"
        self._live.update(
            Panel(body, title=title, title_align="left", border_style="dim", padding=(0, 1)), refresh=True
        )

    def _progress(self, snapshot: Snapshot) -> Table:
        grid = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=snapshot.total, completed=snapshot.done, width=40)
        grid.add_row(bar, f"{snapshot.done}/{snapshot.total} done", f"{snapshot.seconds:.1f} s")
        return grid

    def _workers(self, snapshot: Snapshot) -> Text:
        text = Text()
        for worker in snapshot.workers:
            if worker.killed:
                text.append(f"✖ {worker.name} killed   ", "red")
            else:
                text.append("● ", COLOURS.get(worker.name, ""))
                text.append(f"{worker.name} runs {worker.bodies} (pid {worker.pid})   ")
        return text

    def _locks(self, snapshot: Snapshot) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for column, width in (("lock", 11), ("#", 1), ("held by", 20), ("for", 10), ("waiting", _BAR + 4)):
            table.add_column(column, min_width=width, no_wrap=True)
        table.add_column("next", no_wrap=True)
        self._longest_line = max(
            self._longest_line, *(state.waiting for state in snapshot.states.values()), 1
        )
        for lock, state in snapshot.states.items():
            holders = {holder.slot: holder for holder in state.holders}
            for slot in range(lock.limit):
                first = slot == 0
                table.add_row(
                    Text(lock.label, style="bold") if first else "",
                    str(slot),
                    *_holder(holders.get(slot), snapshot),
                    self._line(state.waiting) if first else "",
                    _next(state, snapshot) if first else "",
                )
        return table

    def _line(self, waiting: int) -> Text:
        length = -(-waiting * _BAR // self._longest_line)
        return Text.assemble(f"{waiting:3} ", ("▪" * length, "yellow"))


def _holder(holder: HolderState | None, snapshot: Snapshot) -> tuple[Text, str]:
    if holder is None:
        return Text("free", style="dim"), ""
    worker = snapshot.worker_of(holder.party)
    name = worker.name if worker else "?"
    if worker and worker.killed:
        return Text(
            f"✖ {holder.party.workflow}, dead", style="red"
        ), f"{holder.lease_left.total_seconds():.1f} s left"
    who = Text.assemble(("■ ", COLOURS.get(name, "")), f"{holder.party.workflow} on {name}")
    return who, f"{holder.held_for.total_seconds():.1f} s"


def _next(state: LockState, snapshot: Snapshot) -> Text:
    """Who is first in line."""
    text = Text(style="dim")
    for waiter in state.waiters[:3]:
        worker = snapshot.worker_of(waiter.party)
        text.append("▪", COLOURS.get(worker.name, "") if worker and not worker.killed else "red")
        text.append(f"{waiter.party.workflow.removeprefix('order-')} ")
    return text


def _when(text: str, seconds: float | None) -> str:
    return text if seconds is None else f"{seconds:5.1f} s  {text}"


def plain_console() -> Console:
    """A console for `PlainView`: wide enough for the table, whatever it is connected to."""
    return Console(width=_PLAIN_WIDTH, force_terminal=False)


def promises_table(promises: Sequence[Promise]) -> Table:
    """The table at the end."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.add_column("promise")
    table.add_column("measured")
    table.add_column("", no_wrap=True)
    for promise in promises:
        verdict = Text(promise.verdict, style=_VERDICTS[promise.verdict])
        table.add_row(Text(promise.text), Text(promise.measured), verdict)
    return table
