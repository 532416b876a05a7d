"""One round of a soak: servers, workers, faults, and the checker over all that happened."""

import asyncio
import contextlib
import json
import resource
import shutil
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import history
from fault_load import Load, load
from history import Expectations, Report
from history.audit import in_order, read_log
from history.client_log import read_notes
from history.expectations import BETWEEN
from soak_arenas import Arena, arena
from soak_faults import PATIENCE, WORKERS, Faults
from soak_injections import Injector
from soak_schedule import LEASE, Round
from soak_worker import BEFORE, CLIENTS, MAX_WAIT, SoakPlan

POLL = 0.5
SLACK = 4.0
"""Seconds that a machine may add to whatever takes time."""
HEALED = 2 * PATIENCE
"""Seconds within which everybody is granted again after faults."""
MANY = 1_000_000
TICK = 1.0


@dataclass
class State:
    """How far a round is, for those who look on."""

    round: Round
    passed: float = 0.0
    """Seconds."""
    seen: Counter[str] = field(default_factory=Counter)
    """How often bodies ``began``, and attempts failed."""
    injected: Counter[str] = field(default_factory=Counter)
    current: list[str] = field(default_factory=list)
    """What is broken now."""


Watch = Callable[[State], None]


@dataclass
class Outcome:
    """What became of a round."""

    round: Round
    injected: Counter[str] = field(default_factory=Counter)
    report: Report | None = None
    broken_off: str = ""
    """Why it did not come to its end."""
    kept: Path | None = None
    """Where its history is, if it is kept."""
    megabytes: float = 0.0
    """The most that this process has needed so far."""
    checking: float = 0.0
    """Seconds."""

    @property
    def good(self) -> bool:
        """Whether it came to its end, and everything that was promised was kept."""
        return self.report is not None and self.report.good

    def count(self, name: str) -> float:
        """A count of the checker."""
        return self.report.counts.get(name, 0) if self.report else 0


async def play(one: Round, directory: Path, seconds: float, watch: Watch) -> Outcome:
    """Play a round for so long, and check it. Its history is kept if anything was wrong."""
    directory.mkdir(parents=True)  # noqa: ASYNC240 - nobody waits
    outcome, state = Outcome(one), State(one)
    try:
        with arena(one.topology) as place:
            try:
                await _record(outcome, state, directory, place, seconds, watch)
            finally:
                if not outcome.good:  # leaving the block removes the servers' logs
                    for server in place.servers:
                        shutil.copyfile(server.log, directory / f"server-{server.port}.log")
    except Exception:
        outcome.broken_off = traceback.format_exc()
    if not outcome.good:
        outcome.kept = directory
    if outcome.good:
        shutil.rmtree(directory)
    outcome.megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return outcome


async def _record(  # noqa: PLR0917 - all of a round
    outcome: Outcome, state: State, directory: Path, place: Arena, seconds: float, watch: Watch
) -> None:
    with history.recording(directory, *place.servers) as run:
        async with load(run, place.variables, processes=0, lease=LEASE, poll=POLL) as loaded:
            loaded.plan = SoakPlan(BEFORE, CLIENTS, MAX_WAIT)
            faults = Faults(place, run, loaded)
            injector = Injector(faults)
            outcome.injected = state.injected = injector.injected
            state.current = injector.current
            async with _watched(loaded, state, watch):
                try:
                    for _ in range(WORKERS):
                        faults.start_worker()
                    await loaded.until_progress(HEALED)
                    await _strike(outcome.round, injector, loaded, seconds)
                except Exception as error:  # while the load is still there, or it says nothing
                    error.add_note(await asyncio.to_thread(place.health))
                    raise
        begun = time.monotonic()
        slack = Expectations(slack=SLACK).on_this_machine().slack
        by = {"forgets": outcome.round.forgets, "slack": slack}
        (directory / "judged-by.json").write_text(json.dumps(by))
        logs = [server.log for server in place.servers]
        outcome.report = _judge(directory, logs, **by)
        outcome.checking = time.monotonic() - begun


async def _strike(one: Round, injector: Injector, loaded: Load, seconds: float) -> None:
    begun = time.monotonic()
    for burst in one.bursts:
        await injector.inject(burst)
        await loaded.until_progress(HEALED)
        await asyncio.sleep(burst.gap)
        if time.monotonic() - begun > seconds:
            break


@contextlib.asynccontextmanager
async def _watched(loaded: Load, state: State, watch: Watch) -> AsyncIterator[None]:
    """Tell every second how far it is."""

    async def look() -> None:
        begun, mark = time.monotonic(), 0
        while True:
            before, mark = mark, loaded.mark()
            state.seen += loaded.outcomes(before)
            state.passed = time.monotonic() - begun
            watch(state)
            await asyncio.sleep(TICK)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


def recheck(directory: Path) -> Report:
    """Check a history that was kept."""
    logs = sorted(directory.glob("server-*.log"))
    return _judge(directory, logs, **json.loads((directory / "judged-by.json").read_text()))


def _judge(directory: Path, logs: list[Path], *, forgets: bool, slack: float) -> Report:
    rows = in_order([list(read_log(path, str(path))) for path in logs])
    expectations = Expectations(poll=POLL * 1.2, slack=slack, at_most={BETWEEN: MANY if forgets else 0})
    return history.check(rows, read_notes(directory), expectations)
