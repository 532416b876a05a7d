"""The checker of histories: each invariant broken once is found, and a history that is right passes."""

import cProfile
import pstats
from dataclasses import replace

import broken_liveness
import broken_safety
import pytest
from handmade_history import LEASE, Breaker, Story, broken_in
from history.expectations import BETWEEN, Expectations

QUICK = Expectations(poll=1, slack=0.5)


def good_story() -> Story:
    """Three owners in turn, one of them parked in between, one in line that leaves, a renewal."""
    story = Story()
    story.take("one")
    story.queue("two")
    story.queue("three")
    story.queue("never")
    story.leave("never")
    story.park("three")
    story.queue("two")
    story.renew("one")
    story.release("one")
    story.take("two")
    story.queue("three-again", waiter="for-three")
    story.release("two")
    story.take("three-again", waiter="for-three")
    story.release("three-again", waiter="for-three")
    return story


def test_a_good_history_passes() -> None:
    """Nothing is found, and the counts say what happened."""
    report = good_story().check(replace(QUICK, at_least={"grants": 3, "waits": 5}))
    assert report.good, str(report)
    expected = {"grants": 3, "waits": 5, "releases": 3, "renewals": 1, "parked": 1, "bodies": 3}
    assert expected.items() <= dict(report.counts).items()
    assert "grants 3, most at once 1 of 1, lost 0, explained 0, violations 0" in str(report)


def test_an_empty_history_proves_nothing() -> None:
    """A run that saw no grants fails, and so does one that did not see what it was made for."""
    assert not Story().check().good
    report = good_story().check(Expectations(at_least={"lost": 1, "waits": 5}, at_most={"grants": 2}))
    assert report.unmet == ["lost: 0, expected at least 1", "grants: 3, expected at most 2"]
    assert not report.good


BROKEN = broken_in(broken_safety, broken_liveness)


@pytest.mark.parametrize(("rule", "story"), BROKEN, ids=[story.__name__ for _, story in BROKEN])
def test_what_is_broken_is_found(rule: str, story: Breaker) -> None:
    """Each invariant broken once is reported by its name, with the events around."""
    told = Story()
    story(told)
    report = told.check(QUICK)
    assert rule in report.rules, str(report)
    assert not report.good
    assert "server 1 " in report.details or "client " in report.details


def test_every_invariant_is_broken_once() -> None:
    """No invariant goes untested."""
    named = {*(f"S{n}" for n in range(1, 13)), *(f"L{n}" for n in range(1, 11))}
    assert named <= {rule for rule, _ in BROKEN}


def a_dead_worker(story: Story) -> None:
    """Its slot comes back when its lease is over."""
    story.take("one", process=8)
    story.queue("two")
    story.note("killed", victim=8)
    for _ in range(3):
        story.time += 0.97
        story.queue("two")
    story.time += 0.5
    story.take("two")
    story.release("two")


def a_dead_waiter(story: Story) -> None:
    """It is in the way for its presence."""
    story.take("one")
    story.queue("two", process=8)
    story.queue("three")
    story.note("killed", victim=8)
    story.release("one")
    story.time += 1
    story.queue("three")
    story.time += 1
    story.take("three")
    story.release("three")


def a_lost_lease(story: Story) -> None:
    """An outage ends it, the body stops late, but soon enough, and nobody is told what is not so."""
    story.take("one")
    story.breaks_for(LEASE)
    story.note("lose", "one", reason="its lease ended")
    story.take("two")
    story.time += 0.5
    story.note("body_end", "one")
    story.release("one", body=False)
    story.release("two")


def a_stopped_worker(story: Story) -> None:
    """Nothing runs in a process that is stopped, so its overrun does not count while it is."""
    story.take("one")
    story.note("fault", fault="stop", victim=7)
    story.time += LEASE
    story.take("two", process=8)
    story.time += 2
    story.renew("two")
    story.note("healed", fault="stop", victim=7)
    story.note("body_end", "one")
    story.note("lose", "one", reason="its lease ended")
    story.release("one", body=False)
    story.release("two")


def a_grant_unheard(story: Story) -> None:
    """An answer that got lost for longer than the lease is followed by a new grant of the same owner."""
    story.grant("one", answer={"error": "timeout"})
    story.time += LEASE
    story.take("one")
    story.release("one")


def a_clean_failover(story: Story) -> None:
    """Another server grants nothing for one lease, and lets the known holder go on."""
    story.take("one")
    story.queue("two")
    story.fail_over()
    story.renew("one")
    for _ in range(3):
        story.queue("two")
        story.renew("one")
        story.time += 1
    story.release("one")
    story.take("two")
    story.release("two")


def a_deadline(story: Story) -> None:
    """A lease is not renewed beyond schedule-to-close."""
    story.take("one", deadline=story.time + LEASE)
    story.time += LEASE
    story.note("lose", "one", reason="schedule_to_close_timeout ran out")
    story.release("one")


FINE = [
    a_deadline,
    a_dead_worker,
    a_dead_waiter,
    a_lost_lease,
    a_stopped_worker,
    a_grant_unheard,
    a_clean_failover,
]


@pytest.mark.parametrize("story", FINE, ids=[story.__name__ for story in FINE])
def test_what_may_happen_is_no_violation(story: Breaker) -> None:
    """What faults bring about, within the promises, is counted and not complained of."""
    told = Story()
    story(told)
    report = told.check(QUICK)
    assert report.good, str(report)


def test_losses_are_explained() -> None:
    """What was lost is counted with its reason, as are those who were told."""
    told = Story()
    a_lost_lease(told)
    counts = told.check(QUICK).counts
    assert (counts["lost"], counts["explained"], counts["bodies after their lease"]) == (1, 1, 1)


def test_a_split_brain_is_counted_apart() -> None:
    """Overlaps that two servers' histories make are counted, and allowed if the test expects them."""
    told = Story()
    broken_safety.a_split_brain(told)
    report = told.check(replace(QUICK, at_least={BETWEEN: 1}, tidy=False))
    assert report.counts[BETWEEN] == 1
    assert "S2" not in {found.rule for found in report.violations if "believe" in found.text}
    never = good_story().check(replace(QUICK, at_least={BETWEEN: 1}))
    assert never.unmet == [f"{BETWEEN}: 0, expected at least 1"]


def test_what_is_left_is_named() -> None:
    """A test may add what it counted itself, which has to be nothing."""
    report = good_story().check(QUICK, connections=2, tasks=0)
    assert [found.text for found in report.violations] == ["2 connections are left"]


def _calls_for_each(turns: int) -> float:
    """How many calls of functions it takes to check an event among so many turns in a long line."""
    story = Story(limit=3)
    for number in range(turns):
        story.queue(f"w{number}") if number >= 3 else story.take(f"w{number}")
        if number >= 50:
            story.release(f"w{number - 50}")
            story.take(f"w{number - 47}")
    profile = cProfile.Profile()
    report = profile.runcall(story.check, replace(QUICK, tidy=False, at_least={"grants": turns - 50}))
    assert report.good, str(report)
    return pstats.Stats(profile).total_calls / len(story.rows)


def test_checking_takes_time_in_proportion() -> None:
    """An event takes as many steps in a history that is four times as long."""
    short, long = _calls_for_each(200), _calls_for_each(800)
    assert long < 1.1 * short
