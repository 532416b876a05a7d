"""What all benchmarks share: measured rows, medians with their spread, rounds that alternate, progress."""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass
class Row:
    """One measure of one contestant in one case: a value for each round."""

    topic: str
    measure: str
    case: str
    who: str
    unit: str
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> float:
        """Half of the way from the lowest to the highest, as a part of the median."""
        return (max(self.values) - min(self.values)) / 2 / abs(self.median) if self.median else 0.0


@dataclass
class Results:
    """All rows, and remarks on what could not be measured."""

    rows: dict[tuple[str, str, str, str], Row] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def add(self, key: tuple[str, str, str, str], unit: str, value: float) -> None:
        """Add the next round's value to the row of this topic, measure, case and contestant."""
        self.rows.setdefault(key, Row(*key, unit)).values.append(value)

    def remark(self, text: str) -> None:
        """Say once that something is missing."""
        if text not in self.remarks:
            self.remarks.append(text)

    def find(self, path: str) -> Row | None:
        """The row named ``topic|measure|case|who``."""
        return self.rows.get(tuple(path.split("|")))  # type: ignore[arg-type]

    def table(self, topic: str, measure: str) -> list[Row]:
        return [row for row in self.rows.values() if (row.topic, row.measure) == (topic, measure)]

    def measures(self, topic: str) -> list[str]:
        return list(dict.fromkeys(row.measure for row in self.rows.values() if row.topic == topic))

    def topics(self) -> list[str]:
        return list(dict.fromkeys(row.topic for row in self.rows.values()))


@dataclass
class Bench:
    """One topic's run: how many rounds, whether quick, and where figures and progress go."""

    topic: str
    results: Results
    rounds: int
    quick: bool
    say: Callable[[str], None]

    def add(self, measure: str, case: str, who: str, unit: str, value: float) -> None:
        if not math.isfinite(value):
            raise ValueError(f"{self.topic}, {measure}, {case}, {who}: {value}")
        self.results.add((self.topic, measure, case, who), unit, value)

    def size(self, full: Any, quick: Any) -> Any:
        """The one that this run wants."""
        return quick if self.quick else full

    @property
    def first_round(self) -> int:
        """-1, which is for warming up, or 0."""
        return 0 if self.quick else -1

    def order(self, contestants: Iterable[Any], number: int) -> list[Any]:
        """A different order in each round, the same in each run, so that nobody always follows the same."""
        shuffled = list(contestants)
        random.Random(number).shuffle(shuffled)  # noqa: S311 - an order, no secret
        return shuffled


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which this part of the values lies; of none, not a number."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else math.nan


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = 60.0) -> None:
    """Return when it is true, looking often."""
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        await asyncio.sleep(0.005)
