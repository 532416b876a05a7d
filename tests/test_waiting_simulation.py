"""Thousands of waiters over hours, under the real policy: nobody starves, and no slot waits."""

import pytest
from waiting_simulation import SCENARIOS, Scenario, Simulation, picture, table

from lock_interceptor.waiting import MAX_DELAY


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_nobody_starves_and_no_slot_waits(scenario: Scenario) -> None:
    """Everybody gets his turn about in order, with few retries, and slots are used while wanted."""
    outcome = Simulation(scenario).run()

    assert scenario.activities == len(outcome.waits)
    # a free slot and somebody who waits in a worker never go together
    assert outcome.idle_beside_present == 0
    assert outcome.used > 0.93
    # an estimate that was too long costs one delay, and then the holds of those who were faster
    assert outcome.overdue <= MAX_DELAY + 2 * outcome.longest_hold + 1
    # few at first, while nobody knows how long holders take; then about four a minute
    for attempts, wait in zip(outcome.attempts, outcome.waits, strict=True):
        assert attempts <= 30 + wait / 15


def test_table_has_a_line_for_each_scenario() -> None:
    """What is printed is what was simulated."""
    lines = table().splitlines()[1:]

    assert [scenario.name for scenario in SCENARIOS] == [line[:38].strip() for line in lines]
    assert picture(SCENARIOS[0]).startswith("<svg")
