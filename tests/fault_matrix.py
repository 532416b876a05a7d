"""One row of the fault matrix: load, a fault, its end, and the checker. What every row has in common."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import history
from fault_load import LEASE, POLL, Load, load
from fault_proxy import FaultProxy
from figures import measured
from history import Expectations, Report, Run
from history.expectations import BETWEEN
from proxy import TcpProxy

from lock_interceptor.dev import RedisServer

SLACK = 3.0
"""Seconds that a busy machine may add to whatever takes time."""
MAX_WAIT = 1.0
"""Seconds: most faults last so long that waiters yield meanwhile, and come back to their places."""
GRANTS = 40
"""So many at least in each row."""
MANY = 1_000_000


@dataclass
class Scene:
    """Where a fault is injected."""

    server: RedisServer
    proxy: TcpProxy | None
    run: Run
    loaded: Load

    @property
    def net(self) -> FaultProxy:
        """The network between the load and the server."""
        assert isinstance(self.proxy, FaultProxy)
        return self.proxy

    @contextlib.contextmanager
    def fault(self, what: str) -> Iterator[None]:
        """Broken while entered."""
        with self.run.fault(what):
            yield


Inject = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True)
class Row:
    """A fault, and what must come of it; S1 to S12 and L1 to L10 have to hold anyway."""

    name: str
    inject: Inject
    at_least: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, int] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    """Of the server."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """For `load`."""
    forgets: bool = False
    """The server forgets grants, so that beliefs in old ones and new ones may overlap."""
    expected: Mapping[str, Any] = field(default_factory=dict)
    """More for `Expectations`."""

    @property
    def expectations(self) -> Expectations:
        """By which the history is judged."""
        at_least = {"grants": GRANTS, "waits": 10, "clients": 2, "faults": 1, **self.at_least}
        overlaps = {BETWEEN: MANY} if self.forgets else {}
        how: dict[str, Any] = {"poll": self.how.get("poll", POLL) * 1.2, "slack": SLACK, **self.expected}
        return Expectations(at_least=at_least, at_most={**overlaps, **self.at_most}, **how)


async def play(
    row: Row,
    server: RedisServer,
    directory: Path,
    *,
    proxy: TcpProxy | None = None,
    settings: Mapping[str, str] | None = None,
) -> tuple[Report, Load]:
    """Inject a row's fault under load, let it heal, and check."""
    with history.recording(directory / "history", server) as run:
        variables = {"REDIS_URL": proxy.url() if proxy else server.url, **(settings or {})}
        async with load(
            run, variables, **{"lease": LEASE, "poll": POLL, "max_wait": MAX_WAIT, **row.how}
        ) as loaded:
            await row.inject(Scene(server, proxy, run, loaded))
            await loaded.until_progress()
            await loaded.until(lambda: loaded.grants() >= GRANTS, "many grants")
        report = run.check(row.expectations, connections=0)
    measured(line(row.name, report))
    return report, loaded


def line(name: str, report: Report) -> str:
    """A line of the matrix."""
    counts = report.counts
    return (
        f"{name}: injected {counts['faults']}, grants {counts['grants']}, "
        f"most at once {counts['most at once']} of {counts['limit']}, leases lost {counts['lost']}, "
        f"explained {counts['explained']}, violations {len(report.violations)}"
    )


async def for_a_while(seconds: float) -> None:
    """How long something is broken."""
    await asyncio.sleep(seconds)
