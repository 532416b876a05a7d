"""Thousands of waiters over hours, under the real policy: nobody starves, and no slot waits."""

import pytest
from waiting_picture import waiting_picture
from waiting_simulation import SCENARIOS, Scenario, Simulation, table

from lock_interceptor.waiting import AWAY, MAX_DELAY


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_nobody_starves_and_no_slot_waits(scenario: Scenario) -> None:
    """Everybody gets his turn about in order, with few retries, and slots are used while wanted."""
    outcome = Simulation(scenario).run()

    assert scenario.activities == len(outcome.waits)
    # nobody waits in a worker beside a free slot, but for the second in which the first in line comes back
    assert outcome.idle_beside_present <= (0.1 if scenario.restarts else 0.02)
    assert outcome.used > 0.95
    # an estimate that was too long costs one delay, and then the holds of those who were faster
    assert outcome.overdue <= MAX_DELAY + 2 * outcome.longest_hold + 1
    # a few at first, when nothing is known, and just before the turn; else one in six seconds at most
    for attempts, wait in zip(outcome.attempts, outcome.waits, strict=True):
        assert attempts <= 30 + wait / AWAY


def test_table_has_a_line_for_each_scenario() -> None:
    """What is printed is what was simulated."""
    lines = table().splitlines()[1:]

    assert [scenario.name for scenario in SCENARIOS] == [line[:31].strip() for line in lines]
    samples = Simulation(SCENARIOS[0]).run().samples
    assert waiting_picture("a title", samples).startswith("<svg")
