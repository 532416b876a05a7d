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

from waiting_picture import waiting_picture

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
    first: float = 0.0
    """Seconds for which the first holders keep the lock."""
    restarts: int = 0
    """How often the next worker is restarted, once in ten seconds."""


@dataclass
class Activity:
    """One activity execution."""

    number: int
    ticket: int | None = None
    attempts: int = 0
    commands: int = 0
    arrived: float = 0.0
    granted: float | None = None
    seat: Seat | None = None
    seated: float = 0.0
    room: WaitingRoom | None = None
    away: bool = False
    """It is between two attempts, but comes straight back and counts as present."""


@dataclass
class Outcome:
    """What came of it."""

    seconds: float
    used: float
    """Part of the slots' time in use while somebody wanted them."""
    idle_beside_present: float
    """Part of the time in which a slot was free while somebody waited in a worker."""
    attempts: list[int]
    waits: list[float]
    busiest: float
    """Most commands that a waiter sent per minute of its waiting, of those who waited for one."""
    overtaken: int
    """How many saw somebody who came later go first."""
    overdue: float
    """Seconds by which somebody came later than his turn, at the most."""
    longest_hold: float
    samples: list[tuple[float, int, int, int]]
    """Time, held, waiting hot, waiting cold."""


class Simulation:
    """Events in virtual time."""

    MAX_WAIT = 30.0
    INTERVAL = 5.0
    PRESENCE = policy.presence(INTERVAL).total_seconds()
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
        self.overtaken: set[int] = set()
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
        for number in range(self.scenario.restarts):
            self.after(10.0 * (number + 1), lambda number=number: self.restart(number))
        while self.events:
            time, _, event = heapq.heappop(self.events)
            self.pass_time(time)
            event()
        granted = {activity.ticket: activity.granted or 0.0 for activity in activities}
        times = [granted[ticket] for ticket in self.order]
        overdue = max(granted[ticket] - time for ticket, time in enumerate(times))
        waits = [(activity.granted or 0.0) - activity.arrived for activity in activities]
        return Outcome(
            self.now,
            self.used / self.wanted,
            self.idle / self.now,
            [activity.attempts for activity in activities],
            waits,
            max(60 * each.commands / max(wait, 60) for each, wait in zip(activities, waits, strict=True)),
            len(self.overtaken),
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
        if passed and free and any(activity.seat for _, activity in self.hot):
            self.idle += passed
        if passed and (not self.samples or time - self.samples[-1][0] > 1):
            self.samples.append((time, self.held, len(self.hot), len(self.line) - len(self.hot)))
        self.now = time

    def attempt(self, activity: Activity) -> None:
        activity.attempts += 1
        activity.commands += 1
        if activity.ticket is None:
            activity.ticket, activity.arrived = len(self.order) + len(self.line), self.now
            self.line.append((activity.ticket, activity))
        self.end_presence(activity)
        if self.scenario.limit - self.held > bisect.bisect_left(self.hot, activity.ticket, key=_ticket):
            return self.grant(activity)
        state, limit = self.state(activity), self.scenario.limit
        seat, room = None, self.random.choice(self.rooms)
        if room.half_empty or policy.waits_hot(state, limit, self.MAX_WAIT):
            seat = room.enter(policy.turn(state, limit), guessed=self.mean is None)
        if seat is None:
            return self.park(activity)
        activity.seat, activity.room, activity.seated = seat, room, self.now
        seat.on_eviction = lambda: self.after(0, lambda: self.called(activity, seat))
        bisect.insort(self.hot, (activity.ticket, activity), key=_ticket)
        self.after(self.INTERVAL, lambda: self.poll(activity, seat))
        return self.after(self.MAX_WAIT, lambda: self.leave(activity, seat))

    def poll(self, activity: Activity, seat: Seat) -> None:
        if activity.seat is not seat:
            return
        self.ask(activity, seat)
        left = activity.seated + self.MAX_WAIT - self.now
        if policy.renews_budget(self.state(activity), self.scenario.limit, self.MAX_WAIT, left):
            self.leave(activity, seat)
        else:
            self.after(self.INTERVAL, lambda: self.poll(activity, seat))

    def ask(self, activity: Activity, seat: Seat) -> None:
        activity.commands += 1
        turn = policy.turn(self.state(activity), self.scenario.limit)
        activity.room.tell(seat, turn, guessed=self.mean is None)

    def called(self, activity: Activity, seat: Seat) -> None:
        """Somebody else needs the seat, or wants to know whether."""
        if activity.seat is seat and seat.evicted:
            self.stand_up(activity)
            self.park(activity)
        elif activity.seat is seat:
            self.ask(activity, seat)

    def leave(self, activity: Activity, seat: Seat) -> None:
        """The budget is over, or the worker stops: straight back, and nobody goes first meanwhile."""
        if activity.seat is seat:
            self.stand_up(activity)
            attempts, activity.away = activity.attempts, True
            bisect.insort(self.hot, (activity.ticket, activity), key=_ticket)
            self.come_back(activity, policy.AT_ONCE.total_seconds())
            self.after(self.PRESENCE - self.INTERVAL, lambda: self.miss(activity, attempts))

    def miss(self, activity: Activity, attempts: int) -> None:
        """One that was to come straight back has not."""
        if activity.attempts == attempts:
            self.end_presence(activity)
            self.serve()

    def end_presence(self, activity: Activity) -> None:
        if activity.away:
            activity.away = False
            self.hot.remove((activity.ticket, activity))

    def restart(self, number: int) -> None:
        """A worker stops, and another one takes its place."""
        room = self.rooms[number % len(self.rooms)]
        for _, activity in list(self.hot):
            if activity.room is room and activity.seat is not None:
                self.leave(activity, activity.seat)

    def stand_up(self, activity: Activity) -> None:
        if activity.seat is not None and activity.room is not None:
            activity.room.leave(activity.seat)
            activity.seat = None
            self.hot.remove((activity.ticket, activity))

    def park(self, activity: Activity) -> None:
        activity.commands += 1
        delay = policy.retry_delay(
            self.state(activity),
            self.scenario.limit,
            self.MAX_WAIT,
            waited=self.now - activity.arrived,
            until_deadline=1e9,
        )
        self.come_back(activity, delay.total_seconds())

    def come_back(self, activity: Activity, delay: float) -> None:
        late = self.random.uniform(0, self.SERVER_TIMER)
        self.after(delay + late, lambda: self.attempt(activity))

    def grant(self, activity: Activity) -> None:
        self.stand_up(activity)
        self.line.remove((activity.ticket, activity))
        for ticket, _ in self.line:
            if ticket > activity.ticket:
                break
            self.overtaken.add(ticket)
        activity.granted = self.now
        self.order.append(activity.ticket)
        self.held += 1
        hold = self.scenario.hold(self.random)
        if len(self.order) <= self.scenario.limit and self.scenario.first:
            hold = self.scenario.first
        self.longest_hold = max(self.longest_hold, hold)
        self.after(hold, lambda: self.release(hold))

    def release(self, hold: float) -> None:
        self.held -= 1
        mean = self.mean or 0.0
        self.mean = mean + (hold - mean) / (2 if hold < mean else 8)
        self.serve()

    def serve(self) -> None:
        free = self.scenario.limit - self.held
        first = [activity for _, activity in self.hot[: max(free, 0)]]
        for activity in first:
            if not activity.away:
                self.grant(activity)

    def state(self, activity: Activity) -> Waiting:
        ahead, present = (
            bisect.bisect_left(line, activity.ticket, key=_ticket) for line in (self.line, self.hot)
        )
        mean = None if self.mean is None else timedelta(seconds=self.mean)
        return Waiting(place=present + 1, ahead=ahead, held=self.held, mean_hold=mean)


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
    Scenario("after ten seconds of nothing", 200, 3, _evenly(0.2, 0.2), first=10),
    Scenario("after ten minutes of nothing", 200, 3, _evenly(0.2, 0.2), first=600),
    Scenario("one by one after ten seconds", 60, 1, _evenly(0.2, 0.2), first=10, arrival=_evenly(0, 5)),
    Scenario("workers restarted", 1000, 3, _evenly(0.5, 1.5), restarts=30),
    Scenario("arriving over an hour", 5000, 5, _evenly(0.5, 6), arrival=_evenly(0, 3600)),
]


COLUMNS = "  hours  in use  attempts  most  commands  overtaken   idle  overdue"
"""Idle: part of the time in which a slot was free while somebody waited in a worker."""


def table() -> str:
    """One line for each scenario."""
    lines = [f"{'':31}{COLUMNS}"]
    for scenario in SCENARIOS:
        outcome = Simulation(scenario).run()
        mean = sum(outcome.attempts) / len(outcome.attempts)
        lines.append(
            f"{scenario.name:31}{outcome.seconds / 3600:7.2f}{outcome.used:8.1%}{mean:10.1f}"
            f"{max(outcome.attempts):6}{outcome.busiest:6.0f}/min{outcome.overtaken:11}"
            f"{outcome.idle_beside_present:7.1%}{outcome.overdue:7.1f} s"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table; draw the picture if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--svg", type=Path, help="where to draw who waits where")
    arguments = parser.parse_args()
    print(table())
    if arguments.svg:
        scenario = SCENARIOS[3]
        title = f"{scenario.activities} activities on a lock of {scenario.limit}"
        arguments.svg.write_text(waiting_picture(title, Simulation(scenario).run().samples), "utf-8")


if __name__ == "__main__":
    main()
