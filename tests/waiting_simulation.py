"""Thousands of waiters on one lock, in virtual time, under the real policy.

    python tests/waiting_simulation.py            a table
    python tests/waiting_simulation.py --svg F    and a picture of who waits where

The line and the timers are simulated, the decisions are those of `lock_interceptor.waiting` and the seats
those of `lock_interceptor.room`.
"""

from __future__ import annotations

import argparse
import bisect
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from lock_interceptor import waiting as policy
from lock_interceptor.room import Seat, WaitingRoom
from lock_interceptor.store import Waiting

Draw = Callable[[random.Random], float]


@dataclass(frozen=True)
class Scenario:
    """What happens: so many activities, a lock, workers with seats, and how long a body takes."""

    name: str
    activities: int
    limit: int
    hold: Draw
    workers: int = 2
    seats: int = 25
    arrival: Draw = field(default=lambda _: 0.0)
    """Seconds after the start at which an activity is scheduled."""


@dataclass
class Activity:
    """One activity execution."""

    number: int
    ticket: int | None = None
    attempts: int = 0
    arrived: float = 0.0
    granted: float | None = None
    seat: Seat | None = None
    room: WaitingRoom | None = None
    hot_until: float = 0.0


@dataclass
class Outcome:
    """What came of it."""

    seconds: float
    used: float
    """Part of the slots' time in use while somebody wanted them."""
    idle_beside_present: float
    """Seconds for which a slot was free while somebody waited in a worker."""
    attempts: list[int]
    waits: list[float]
    overdue: float
    """Seconds by which somebody came later than his turn, at the most."""
    longest_hold: float
    samples: list[tuple[float, int, int, int]]
    """Time, held, waiting hot, waiting cold."""


class Simulation:
    """Events in virtual time."""

    MAX_WAIT = 30.0
    SERVER_TIMER = 0.3
    """Temporal is late by up to so many seconds."""

    def __init__(self, scenario: Scenario, seed: int = 1) -> None:
        self.scenario = scenario
        self.random = random.Random(seed)  # noqa: S311 - to be repeatable
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.line: list[tuple[int, Activity]] = []
        self.hot: list[tuple[int, Activity]] = []
        self.held = 0
        self.mean: float | None = None
        self.order: list[int] = []
        self.rooms = [WaitingRoom(scenario.seats) for _ in range(scenario.workers)]
        self.used = self.wanted = self.idle = 0.0
        self.samples: list[tuple[float, int, int, int]] = []
        self.longest_hold = 0.0
        self.count = 0

    def run(self) -> Outcome:
        """To the end of the last activity."""
        activities = [Activity(number) for number in range(self.scenario.activities)]
        for activity in activities:
            self.after(self.scenario.arrival(self.random), lambda activity=activity: self.attempt(activity))
        while self.events:
            time, _, event = heapq.heappop(self.events)
            self.pass_time(time)
            event()
        granted = {activity.ticket: activity.granted or 0.0 for activity in activities}
        times = [granted[ticket] for ticket in self.order]
        overdue = max(granted[ticket] - time for ticket, time in enumerate(times))
        return Outcome(
            self.now,
            self.used / self.wanted,
            self.idle,
            [activity.attempts for activity in activities],
            [(activity.granted or 0.0) - activity.arrived for activity in activities],
            overdue,
            self.longest_hold,
            self.samples,
        )

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, event))

    def pass_time(self, time: float) -> None:
        passed, free = time - self.now, self.scenario.limit - self.held
        self.wanted += passed * min(self.scenario.limit, self.held + len(self.line))
        self.used += passed * self.held
        self.idle += passed * min(free, len(self.hot))
        if passed and (not self.samples or time - self.samples[-1][0] > 1):
            self.samples.append((time, self.held, len(self.hot), len(self.line) - len(self.hot)))
        self.now = time

    def attempt(self, activity: Activity) -> None:
        activity.attempts += 1
        if activity.ticket is None:
            activity.ticket, activity.arrived = len(self.order) + len(self.line), self.now
            self.line.append((activity.ticket, activity))
        if self.scenario.limit - self.held > bisect.bisect_left(self.hot, activity.ticket, key=_ticket):
            return self.grant(activity)
        state, limit = self.state(activity), self.scenario.limit
        seat, room = None, self.random.choice(self.rooms)
        if policy.waits_hot(state, limit, self.MAX_WAIT):
            seat = room.enter(policy.turn(state, limit))
        if seat is None:
            return self.park(activity)
        activity.seat, activity.room = seat, room
        seat.on_eviction = lambda: self.after(0, lambda: self.leave(activity, seat))
        bisect.insort(self.hot, (activity.ticket, activity), key=_ticket)
        return self.after(self.MAX_WAIT, lambda: self.leave(activity, seat))

    def leave(self, activity: Activity, seat: Seat) -> None:
        """The budget is over, or somebody else needs the seat."""
        if activity.seat is seat:
            self.stand_up(activity)
            self.park(activity)

    def stand_up(self, activity: Activity) -> None:
        if activity.seat is not None and activity.room is not None:
            activity.room.leave(activity.seat)
            activity.seat = None
            self.hot.remove((activity.ticket, activity))

    def park(self, activity: Activity) -> None:
        delay = policy.retry_delay(self.state(activity), self.scenario.limit, self.MAX_WAIT, 1e9)
        late = self.random.uniform(0, self.SERVER_TIMER)
        self.after(delay.total_seconds() + late, lambda: self.attempt(activity))

    def grant(self, activity: Activity) -> None:
        self.stand_up(activity)
        self.line.remove((activity.ticket, activity))
        activity.granted = self.now
        self.order.append(activity.ticket)
        self.held += 1
        hold = self.scenario.hold(self.random)
        self.longest_hold = max(self.longest_hold, hold)
        self.after(hold, lambda: self.release(hold))

    def release(self, hold: float) -> None:
        self.held -= 1
        self.mean = hold if self.mean is None else self.mean + (hold - self.mean) / 8
        while self.hot and self.held < self.scenario.limit:
            self.grant(self.hot[0][1])

    def state(self, activity: Activity) -> Waiting:
        ahead = bisect.bisect_left(self.line, activity.ticket, key=_ticket)
        mean = None if self.mean is None else timedelta(seconds=self.mean)
        return Waiting(place=1, ahead=ahead, held=self.held, mean_hold=mean)


def _ticket(pair: tuple[int, Activity]) -> int:
    return pair[0]


def _evenly(low: float, high: float) -> Draw:
    return lambda random: random.uniform(low, high)


SCENARIOS = [
    Scenario("short bodies, few seats", 300, 3, _evenly(0.2, 0.2), seats=10),
    Scenario("short bodies", 2000, 3, _evenly(0.2, 0.2)),
    Scenario("mutex", 3000, 1, _evenly(0.1, 0.1), workers=3),
    Scenario("seconds", 2000, 3, _evenly(1, 3)),
    Scenario("half minutes", 2000, 10, _evenly(5, 30), workers=4),
    Scenario("minutes, for hours", 300, 1, _evenly(60, 60), workers=3),
    Scenario("scattered", 1000, 2, lambda random: random.expovariate(0.5), workers=3),
    Scenario("one in fifty takes a minute", 1000, 3, lambda random: 60 if random.random() < 0.02 else 0.2),
    Scenario("wide limit", 2000, 100, _evenly(1, 10), workers=4),
    Scenario("arriving over an hour", 5000, 5, _evenly(0.5, 6), arrival=_evenly(0, 3600)),
]


def table() -> str:
    """One line for each scenario."""
    lines = [f"{'':38}{'hours':>7}{'in use':>8}{'attempts':>10}{'most':>6}{'overdue':>10}"]
    for scenario in SCENARIOS:
        outcome = Simulation(scenario).run()
        mean = sum(outcome.attempts) / len(outcome.attempts)
        lines.append(
            f"{scenario.name:38}{outcome.seconds / 3600:7.2f}{outcome.used:8.1%}{mean:10.1f}"
            f"{max(outcome.attempts):6}{outcome.overdue:8.1f} s"
        )
    return "\n".join(lines)


def picture(scenario: Scenario) -> str:
    """Who waits where over time, as SVG."""
    samples = Simulation(scenario).run().samples
    width, height, left, top = 720, 260, 60, 40
    end, most = samples[-1][0], max(hot + cold for _, _, hot, cold in samples)

    def area(values: list[tuple[float, float]], colour: str) -> str:
        points = [
            f"{left + time / end * width:.1f},{top + height - value / most * height:.1f}"
            for time, value in values
        ]
        corners = f"{left},{top + height} {' '.join(points)} {left + width},{top + height}"
        return f'<polygon points="{corners}" fill="{colour}"/>'

    cold = area([(time, hot + cold) for time, _, hot, cold in samples], "#9db8d9")
    hot = area([(time, hot) for time, _, hot, _ in samples], "#d9822b")
    legend = [("#9db8d9", "parked: between two attempts"), ("#d9822b", "waiting in a worker")]
    keys = "".join(
        f'<rect x="{left + 230 * i}" y="14" width="12" height="12" fill="{colour}"/>'
        f'<text x="{left + 18 + 230 * i}" y="25">{text}</text>'
        for i, (colour, text) in enumerate(legend)
    )
    bottom, scale = top + height, 'text-anchor="end"'
    marks = "".join(
        f'<text x="{left + width * part / 4:.0f}" y="{bottom + 18}" text-anchor="middle">'
        f"{end * part / 240:.0f} min</text>"
        for part in range(5)
    )
    marks += f'<text x="{left - 8}" y="{top + 5}" {scale}>{most}</text>'
    marks += f'<text x="{left - 8}" y="{bottom}" {scale}>0</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 40} {top + height + 30}" '
        f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="#fff"/>'
        f"<title>{scenario.activities} activities on a lock of {scenario.limit}</title>"
        f"{cold}{hot}{keys}{marks}</svg>\n"
    )


def main() -> None:
    """Print the table; draw the picture if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--svg", type=Path, help="where to draw who waits where")
    arguments = parser.parse_args()
    print(table())
    if arguments.svg:
        arguments.svg.write_text(picture(SCENARIOS[3]), "utf-8")


if __name__ == "__main__":
    main()
