"""What was to be reached, and whether it was."""

from dataclasses import dataclass
from statistics import median

from measuring import Results
from reporting import number

OURS = "lock_interceptor"
TRIP = "hand_over|one round trip|SET NX PX|floor"
TRIP_AFTER_SILENCE = "hand_over|one round trip|SET NX PX after 5 ms of silence|floor"


@dataclass(frozen=True)
class Verdict:
    """A target, and what was measured; None if the run has no figures for it."""

    text: str
    value: float | None
    limit: float
    unit: str = ""
    at_most: bool = True

    @property
    def wanted(self) -> str:
        return f"at {'most' if self.at_most else 'least'} {self.limit:g}{self.unit}"

    @property
    def measured(self) -> str:
        return "not measured" if self.value is None else f"{number(self.value)}{self.unit}"

    @property
    def reached(self) -> bool:
        if self.value is None:
            return False
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    @property
    def word(self) -> str:
        if self.value is None:
            return ""
        if self.reached:
            return "reached"
        off = abs(self.value - self.limit) / self.limit if self.limit else 0
        by = (
            ""
            if not off
            else f" by {off:.0%}"
            if off < 1
            else f", {self.value / self.limit:.1f} times as much"
        )
        return f"missed{by}"


def ratio(results: Results, path: str, to: str) -> float | None:
    """The median over the rounds of one figure divided by another one of the same round."""
    one, other = results.find(path), results.find(to)
    if one is None or other is None:
        return None
    if len(one.values) != len(other.values):
        return one.median / other.median if other.median else None
    return median(a / b if b else a for a, b in zip(one.values, other.values, strict=True))


def value(results: Results, path: str) -> float | None:
    row = results.find(path)
    return None if row is None else row.median


def _at_least(text: str, measured: float | None, least: float, unit: str = "") -> Verdict:
    return Verdict(text, measured, least, unit, at_most=False)


def _at_most(text: str, measured: float | None, most: float, unit: str = "") -> Verdict:
    return Verdict(text, measured, most, unit)


def verdicts(results: Results) -> list[Verdict]:
    return [*_cost(results), *_store(results), *_hand_over(results), *_fairness(results), *_scale(results)]


def _cost(results: Results) -> list[Verdict]:
    rate = "cost|activities a second"
    found = []
    for case in (
        "async, 1 in parallel",
        "async, 50 in parallel",
        "sync, 1 in parallel",
        "sync, 50 in parallel",
    ):
        kept = ratio(results, f"{rate}|{case}|locked", f"{rate}|{case}|bare")
        found.append(_at_least(f"throughput, locked / bare, {case}", kept, 0.95))
    events = "cost|history events per activity|async, 1 in parallel"
    locked, bare = value(results, f"{events}|locked"), value(results, f"{events}|bare")
    extra = None if locked is None or bare is None else locked - bare
    trips = value(results, "cost|round trips to Redis per activity|async, 1 in parallel|locked")
    found.append(_at_most("additional history events of a locked activity", extra, 0))
    found.append(_at_most("round trips to Redis of a locked activity", trips, 2))
    return found


def _store(results: Results) -> list[Verdict]:
    pair = "store|p50 of a pair, a lock each|1 task"
    floors = {"redis-py's client": "floor", "the store's own connection": "floor, shared"}
    found = [
        _at_most(
            f"pair of the store / floor on {where}, 1 task",
            ratio(results, f"{pair}|{OURS}", f"{pair}|{floor}"),
            1.3,
        )
        for where, floor in floors.items()
    ]
    for what in ("a lock each", "one lock"):
        path = f"store|pairs a second, {what}|50 tasks"
        rows = results.table("store", f"pairs a second, {what}")
        peers = [
            row.who for row in rows if row.case == "50 tasks" and row.who != OURS and "floor" not in row.who
        ]
        ratios = {peer: ratio(results, f"{path}|{OURS}", f"{path}|{peer}") for peer in peers}
        found += [
            _at_least(f"pairs a second / {peer}, 50 tasks, {what}", ratios[peer], 1)
            for peer in sorted(ratios)
        ]
    return found


def _hand_over(results: Results) -> list[Verdict]:
    case = "hand_over|p50 of a hand-over|10 waiting, bodies of 5 ms"
    ours, floor = value(results, f"{case}|{OURS}"), value(results, f"{case}|floor")
    found = []
    for text, path in (
        ("p50 of a hand-over within a worker, beyond the floor", TRIP),
        ("the same, counted in round trips that come after 5 ms of silence, as it does", TRIP_AFTER_SILENCE),
    ):
        trip = value(results, path)
        trips = None if ours is None or floor is None or not trip else (ours - floor) / trip
        found.append(_at_most(text, trips, 3, " round trips"))
    p99 = [row.median for row in results.table("hand_over", "p99 of a hand-over") if row.who == OURS]
    found.append(
        _at_most("p99 of a hand-over within a worker, the worst case", max(p99, default=None), 50, " ms")
    )
    used = [
        row.median
        for row in results.table("hand_over", "slot use")
        if row.who == OURS and row.case.endswith("bodies of 50 ms")
    ]
    found.append(
        _at_least("slot use at the store, bodies of 50 ms, the worst case", min(used, default=None), 95, " %")
    )
    for way in ("interceptor", "plugin"):
        path = f"hand_over|slot use, through Temporal|{way}, limit 3, bodies of 200 ms|{OURS}"
        found.append(
            _at_least(f"slot use through Temporal, {way}, bodies of 200 ms", value(results, path), 95, " %")
        )
    return found


def _fairness(results: Results) -> list[Verdict]:
    worst = [row.median for row in results.table("fairness", "busiest / idlest") if row.who == OURS]
    return [
        _at_most("turns of the busiest / the idlest client, the worst case", max(worst, default=None), 1.2)
    ]


def _scale(results: Results) -> list[Verdict]:
    found = []
    for text, measure, most in (
        ("acquire with 10,000 waiting / with 10", "p50 of an acquire", 2),
        (
            "pair on an unrelated lock, with 10,000 waiting elsewhere / with 10",
            "p50 of a pair on an unrelated lock",
            1.1,
        ),
        ("the same while the last of them asks all the time", "p50 of the same while the line asks", 1.1),
    ):
        path = f"scale|{measure}"
        slower = ratio(results, f"{path}|10,000 waiting|{OURS}", f"{path}|10 waiting|{OURS}")
        found.append(_at_most(text, slower, most))
    return found
