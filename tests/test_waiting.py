"""How long to wait and where: the policy, case by case."""

from datetime import timedelta

import pytest

from lock_interceptor.store import HolderState, LockId, Party, Waiting
from lock_interceptor.waiting import (
    Allowance,
    expected_wait,
    explain,
    has_to_stay,
    hot_budget,
    keep_place,
    longest_absence,
    may_return,
    next_poll,
    poll_interval,
    presence,
    renews_budget,
    retry_delay,
    turn,
    waits_hot,
)

HOUR = 3600.0


def seconds(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)


def waiting(
    ahead: int = 0,
    mean: float | None = None,
    *,
    parked: int = 0,
    expiry: float | None = None,
    settling: float | None = None,
) -> Waiting:
    """State of one that has so many ahead, so many of them parked."""
    return Waiting(
        place=ahead - parked + 1,
        ahead=ahead,
        held=1,
        mean_hold=seconds(mean),
        next_expiry=seconds(expiry),
        settling=seconds(settling),
    )


@pytest.mark.parametrize(
    ("allowance", "max_wait", "expected"),
    [
        pytest.param(Allowance(HOUR, HOUR), 30, 30, id="no longer than the settings say"),
        pytest.param(Allowance(HOUR, 60), 30, 15, id="a quarter of start-to-close"),
        pytest.param(Allowance(HOUR, HOUR, attempts_left=2), 30, HOUR / 2, id="half when attempts are few"),
        pytest.param(Allowance(HOUR, HOUR, attempts_left=0), 30, HOUR / 2, id="half on the last attempt"),
        pytest.param(Allowance(3, 3), 30, 0.75, id="room for one more attempt"),
        pytest.param(Allowance(2, 2), 30, 1.7, id="to the end when no attempt can follow"),
        pytest.param(Allowance(2, 60), 30, 1.7, id="schedule-to-close counts, too"),
        pytest.param(Allowance(HOUR, HOUR), 0, 0, id="not at all if that is what the settings say"),
        pytest.param(Allowance(0.1, 0.1), 30, 0, id="never less than nothing"),
    ],
)
def test_hot_budget(allowance: Allowance, max_wait: float, expected: float) -> None:
    """An attempt waits in the worker as long as leaves the body its time, and a yield is not too dear."""
    assert expected == pytest.approx(hot_budget(allowance, max_wait))


@pytest.mark.parametrize(
    ("state", "limit", "expected"),
    [
        pytest.param(waiting(ahead=0), 1, None, id="nobody has released yet"),
        pytest.param(waiting(ahead=0, mean=10), 1, 10, id="next"),
        pytest.param(waiting(ahead=5, mean=10), 1, 60, id="five before it"),
        pytest.param(waiting(ahead=5, mean=10), 3, 20, id="three slots"),
        pytest.param(waiting(ahead=0, mean=10, settling=5), 1, 15, id="and the grace after a failover"),
    ],
)
def test_expected_wait(state: Waiting, limit: int, expected: float | None) -> None:
    """The expected wait follows from who is ahead, the limit and the mean hold."""
    assert expected == expected_wait(state, limit)


@pytest.mark.parametrize(
    ("state", "limit", "left", "hot"),
    [
        pytest.param(waiting(ahead=0, mean=600), 1, 30, True, id="next in line, however long holders take"),
        pytest.param(waiting(ahead=1, mean=600), 1, 30, True, id="second per slot"),
        pytest.param(waiting(ahead=2, mean=600), 1, 30, False, id="third per slot, and long to go"),
        pytest.param(waiting(ahead=5, mean=600), 3, 30, True, id="second per slot of three"),
        pytest.param(waiting(ahead=500, parked=499, mean=600), 1, 30, True, id="nearly all ahead are away"),
        pytest.param(waiting(ahead=500, parked=498, mean=600), 1, 30, False, id="two ahead are here"),
        pytest.param(waiting(ahead=500), 1, 30, True, id="nobody knows how long it takes"),
        pytest.param(waiting(ahead=100, mean=0.2), 1, 30, True, id="far back, but soon there"),
        pytest.param(waiting(ahead=100, mean=0.2), 1, 20, False, id="later than this attempt may wait"),
    ],
)
def test_waits_hot(state: Waiting, limit: int, left: float, hot: bool) -> None:
    """An attempt waits in the worker when its turn is near, and otherwise comes back."""
    assert hot is waits_hot(state, limit, left)


@pytest.mark.parametrize(
    ("state", "left", "renews"),
    [
        pytest.param(waiting(ahead=29, mean=1), 14, True, id="the budget will not do"),
        pytest.param(waiting(ahead=9, mean=1), 14, True, id="nor if it takes twice as long"),
        pytest.param(waiting(ahead=5, mean=1), 14, False, id="it will do"),
        pytest.param(waiting(ahead=29, mean=1), 16, False, id="half of it is left"),
        pytest.param(waiting(ahead=1, mean=60), 1, False, id="one of the next stays to the end"),
        pytest.param(waiting(ahead=29), 14, False, id="nobody knows"),
    ],
)
def test_renews_budget(state: Waiting, left: float, renews: bool) -> None:
    """One whose turn comes about when its budget ends renews that before it is next in line."""
    assert renews is renews_budget(state, 1, 30, left)


@pytest.mark.parametrize(
    ("state", "waited", "expected"),
    [
        pytest.param(waiting(ahead=30, parked=5), HOUR, 6, id="the foremost come back ten times a minute"),
        pytest.param(waiting(ahead=150, parked=100), HOUR, 10, id="those behind them less often"),
        pytest.param(waiting(ahead=30, parked=5, mean=60), HOUR, 15, id="a quarter of a usual hold"),
        pytest.param(waiting(ahead=30, parked=5, mean=60), 4, 3, id="nothing seen yet: soon"),
        pytest.param(waiting(ahead=150, parked=100), 0, 0, id="just come: at once"),
    ],
)
def test_longest_absence(state: Waiting, waited: float, expected: float) -> None:
    """Those who are parked come back in turn, whatever is expected."""
    assert expected == pytest.approx(longest_absence(state, waited))


@pytest.mark.parametrize(
    ("state", "until_deadline", "expected"),
    [
        pytest.param(waiting(ahead=9, parked=1, mean=1), HOUR, 6, id="not for longer than that"),
        pytest.param(waiting(ahead=5, parked=1, mean=1), HOUR, 4, id="two seconds early"),
        pytest.param(waiting(ahead=499, parked=499, mean=0.1), HOUR, 40, id="a fifth early"),
        pytest.param(waiting(ahead=999, parked=999, mean=1), HOUR, 60, id="at least every minute"),
        pytest.param(waiting(ahead=499, parked=499, mean=1), 30, 28, id="never past schedule-to-close"),
        pytest.param(waiting(ahead=499, parked=499, mean=1), 1.5, 1, id="never under what the server can do"),
    ],
)
def test_retry_delay(state: Waiting, until_deadline: float, expected: float) -> None:
    """A parked waiter comes back shortly before its turn."""
    delay = retry_delay(state, 1, 30, waited=HOUR, until_deadline=until_deadline)

    assert timedelta(seconds=expected) == delay


@pytest.mark.parametrize("until_deadline", [0.5, 1.9, 2.5, 10, 100, HOUR])
@pytest.mark.parametrize("ahead", [0, 3, 10, 1000])
def test_no_delay_reaches_past_the_deadline(until_deadline: float, ahead: int) -> None:
    """While another attempt is possible the delay ends before schedule-to-close."""
    state = waiting(ahead=ahead, mean=7)
    delay = retry_delay(state, 1, 30, waited=HOUR, until_deadline=until_deadline).total_seconds()

    assert 1 <= delay <= 60
    assert delay < until_deadline or until_deadline <= 2


@pytest.mark.parametrize(
    ("allowance", "stays"),
    [
        pytest.param(Allowance(HOUR, HOUR), False, id="it can come back"),
        pytest.param(Allowance(HOUR, HOUR, attempts_left=3), True, id="each return costs an attempt"),
        pytest.param(Allowance(HOUR, HOUR, attempts_left=0), True, id="it cannot come back"),
        pytest.param(Allowance(1.5, 1.5), True, id="it would come back too late"),
    ],
)
def test_has_to_stay(allowance: Allowance, stays: bool) -> None:
    """An attempt whose yield would cost too much is not sent away."""
    assert stays is has_to_stay(allowance, hot_budget(allowance, 30))


def test_may_return() -> None:
    """A place is worth keeping for who can come back."""
    assert may_return(Allowance(HOUR, HOUR), 100)
    assert may_return(Allowance(HOUR, HOUR, attempts_left=1), 100)
    assert not may_return(Allowance(HOUR, HOUR, attempts_left=0), 100)
    assert not may_return(Allowance(HOUR, HOUR), 0.5)


@pytest.mark.parametrize(
    ("state", "low", "high"),
    [
        pytest.param(waiting(), 4, 5, id="the interval"),
        pytest.param(waiting(expiry=29), 4, 5, id="no lease ends before"),
        pytest.param(waiting(expiry=1), 1, 1.2, id="when the nearest lease ends"),
        pytest.param(waiting(expiry=3, settling=2), 2, 2.2, id="when the grace ends"),
    ],
)
def test_next_poll(state: Waiting, low: float, high: float) -> None:
    """A waiter that nothing wakes asks again after the interval, or when something is due to change."""
    assert low <= next_poll(state, 5, 0) <= next_poll(state, 5, 1) <= high


def test_a_waiter_may_miss_two_polls() -> None:
    """Presence outlasts two polls that got lost, and is never too short for a reconnect."""
    assert timedelta(seconds=15) == presence(5)
    assert timedelta(seconds=2) == presence(0.1)


@pytest.mark.parametrize("lease", [1, 3, 9, 30, 600])
def test_a_dead_waiter_blocks_the_line_no_longer_than_a_dead_holder(lease: float) -> None:
    """The line goes on within the lease, whatever the interval, but for the time of a reconnect."""
    assert presence(poll_interval(5, lease)) <= timedelta(seconds=max(lease, 2))
    assert poll_interval(5, 30) == 5


def test_a_place_is_kept_until_the_next_attempt_can_be_there() -> None:
    """The place outlives the attempt, but not schedule-to-close."""
    assert timedelta(seconds=660) == keep_place(Allowance(HOUR, 60))
    assert timedelta(seconds=120) == keep_place(Allowance(120, 60))


def test_turns_compare_whatever_is_known() -> None:
    """Who is nearer to the front has the smaller turn, also before anybody has released."""
    assert turn(waiting(ahead=1), 1) < turn(waiting(ahead=2), 1)
    assert turn(waiting(ahead=5), 5) < turn(waiting(ahead=5), 1)
    assert turn(waiting(ahead=1, mean=3), 1) == 6
    assert turn(waiting(ahead=1, mean=0), 1) < turn(waiting(ahead=2, mean=0), 1)


def test_explanation_says_what_an_operator_wants_to_know() -> None:
    """Lock, limit, place, expected wait, and who holds it since when."""
    holders = tuple(
        HolderState(
            owner=str(n),
            token=n,
            slot=n,
            lease_left=timedelta(seconds=20),
            held_for=timedelta(seconds=8 + n),
            party=Party(workflow=f"order-{n}", activity="pick", activity_id="1"),
        )
        for n in range(3)
    )
    state = Waiting(
        place=2,
        ahead=9,
        held=5,
        mean_hold=timedelta(seconds=6),
        settling=timedelta(seconds=3),
        holders=holders,
    )

    text = explain(LockId("shop", "warehouse", "eu"), 5, state)

    assert text == (
        "lock warehouse[eu]: 5 of 5 held, place 10 in line, nothing is granted for 3 s after a failover or "
        "restart, expected wait about 15 s or more; held by workflow order-0, activity pick (1) since 8 s, "
        "workflow order-1, activity pick (1) since 9 s, "
        "workflow order-2, activity pick (1) since 10 s, 2 more"
    )
