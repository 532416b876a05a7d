"""Failover, lease and grace: every state of a model, and set-ups that break the promise are seen to do so."""

import math

import pytest
from failover_cases import CASES, LEASE, Case, smallest_grace
from failover_model import LAST_WRITES, PROMOTIONS, counterexamples, graces, table, tell
from figures import measured

FLOOR = 2_000
"""States that a case which is called safe has at least."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_case_comes_out_as_it_is_called(case: Case) -> None:
    """A set-up that is called safe has no way to a broken promise; one that is not has, and it is told."""
    for setup, states, way in case.found:
        measured(f"{case.name}: {states:,} states{', and a way to break it' if way else ''}")
        print(*(tell(setup, way) if way else ()), sep="\n")
        assert (way is None) == case.safe
    assert not case.safe or case.states >= FLOOR


@pytest.mark.parametrize("until", LAST_WRITES)
@pytest.mark.parametrize("promoted", PROMOTIONS)
def test_smallest_safe_grace(until: int, promoted: int) -> None:
    """It is lease + M - D; and there is none if the old primary grants while known holders move over."""
    grace = smallest_grace(LEASE, until, promoted)
    if until > promoted and promoted < LEASE:
        assert math.isnan(grace)
    else:
        assert grace == max(LEASE + until - promoted, 0)


@pytest.mark.parametrize("lease", [1, 2, 4])
def test_one_lease_of_grace_is_enough_if_the_old_primary_stops_in_time(lease: int) -> None:
    """With M = D the smallest safe grace is one lease, however long that is, and never more."""
    assert smallest_grace(lease, 1, 1) == lease


def test_what_is_printed_is_what_was_found() -> None:
    """The table has each case, the graces each time, and there is a story for each unsafe case."""
    rows, stories = table().splitlines()[2:], counterexamples().split("\n\n")
    assert [case.safe for case in CASES] == ["| yes |" in row for row in rows]
    assert len(stories) == sum(not case.safe for case in CASES)
    assert all(" run, where 1 may" in story for story in stories)
    assert graces().count("none") == 5
    assert sum(case.states for case in CASES) >= 100_000
