"""Random faults that overlap, judged by the history checker; and what the soak says of what it did."""

import asyncio
import itertools
import os
import secrets
from collections import Counter
from pathlib import Path

import pytest
from history import Report
from history.findings import Violation
from soak import main, soak, summary, verdict
from soak_display import describe
from soak_injections import INJECTIONS
from soak_round import Outcome, State
from soak_schedule import KINDS, LEASE, TOPOLOGIES, USUAL, Burst, Round, rounds

SECONDS = float(os.environ.get("SOAK_SECONDS", "0"))


@pytest.mark.skipif(not SECONDS, reason="takes minutes: SOAK_SECONDS=120")
@pytest.mark.timeout(4 * SECONDS + 120)
def test_nothing_promised_is_broken_by_faults_at_random(tmp_path: Path) -> None:
    """Whatever strikes processes, servers and connections: no invariant breaks, and losses have reasons."""
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(10**9))
    again = ["python", "tests/soak.py", "--minutes", f"{SECONDS / 60:g}", "--seed", str(seed)]
    print("seed", seed, "again:", *again, flush=True)
    outcomes = asyncio.run(soak(rounds(seed, SECONDS, USUAL), tmp_path, lambda _: None))
    print(summary(outcomes))
    assert verdict(outcomes, again) == 0
    injected: Counter[str] = sum((outcome.injected for outcome in outcomes), Counter())
    assert len(injected) >= (8 if SECONDS >= 120 else 2), injected
    assert sum(outcome.count("grants") for outcome in outcomes) >= 3 * SECONDS
    assert sum(outcome.count("explained") for outcome in outcomes) >= 1


def some(one: Round, count: int = 300) -> list[Burst]:
    """The first bursts of a round."""
    return list(itertools.islice(one.bursts, count))


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_seed_says_which_faults_strike_when(topology: str) -> None:
    """One seed makes the same faults at the same times; another one, or another round, makes others."""
    one, other = rounds(1, 200, [topology])[:2]
    assert some(one) == some(rounds(1, 200, [topology])[0])
    assert some(one) != some(rounds(2, 200, [topology])[0])
    assert some(one) != some(other)


def test_a_seed_says_the_same_next_year() -> None:
    """What a failure printed can be repeated on another machine and another version of Python."""
    first = some(rounds(1, 120, USUAL)[0], 2)
    assert [[strike.kind.name for strike in burst.strikes] for burst in first] == [
        ["black hole for long", "server misses replicas"],
        ["black hole for a moment", "DEL of a lock"],
    ]
    assert [round(burst.gap, 6) for burst in first] == [3.329883, 0.651345]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_faults_overlap_and_leave_time_to_recover(topology: str) -> None:
    """All kinds come by, some together; none undoes another, and after each burst there is a gap."""
    for one in rounds(3, 600, [topology]):
        made = some(one)
        struck = Counter(strike.kind for burst in made for strike in burst.strikes)
        assert set(struck) == set(one.kinds)
        assert max(struck.values()) - min(struck.values()) <= 1
        assert {len(burst.strikes) for burst in made} >= {1, 2, 3}
        for burst in made:
            lanes = [lane for strike in burst.strikes for lane in strike.kind.lanes]
            assert len(set(lanes)) == len(lanes)
            assert 0 < burst.gap <= LEASE
        assert made[0].strikes[0].kind.costs
        assert len(made[0].strikes) >= 2


def test_outages_are_shorter_and_longer_than_a_lease() -> None:
    """Of what lasts, some kinds cost no lease by themselves, and some cost every lease."""
    lasting = [kind.leases for kind in KINDS if kind.leases[1]]
    assert any(longest < 1 for _, longest in lasting)
    assert any(shortest > 1 for shortest, _ in lasting)
    assert all(longest < 1 or shortest > 1 for shortest, longest in lasting)


def test_some_rounds_forget_and_some_do_not() -> None:
    """Each topology has rounds in which servers are made to forget, and such that allow for no overlap."""
    for topologies in (["cluster"], USUAL, TOPOLOGIES):
        plan = rounds(1, 3600, topologies)
        assert sum(one.seconds for one in plan) == pytest.approx(3600)
        assert {(one.topology, one.forgets) for one in plan} == set(
            itertools.product(topologies, (True, False))
        )
        assert not any(kind.forgets for one in plan if not one.forgets for kind in one.kinds)


def test_every_kind_of_fault_can_be_injected() -> None:
    """The schedule and the injections know the same kinds."""
    assert set(INJECTIONS) == {kind.name for kind in KINDS}


def bad() -> Outcome:
    """A round in which more held a lock than may."""
    one = rounds(7, 120, USUAL)[2]
    report = Report({"grants": 9, "lost": 1}, [Violation("S1", "granted as number 2 of 1", "lock", 1.0)], [])
    return Outcome(one, Counter({"FLUSHALL": 2}), report, kept=Path("kept"))


def test_a_violation_is_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    """A bad round says how to repeat it, where its history is, and how to check that again."""
    again = ["python", "tests/soak.py", "--minutes", "2", "--seed", "7"]
    assert verdict([bad()], again) == 1
    said = capsys.readouterr().out
    assert "python tests/soak.py --minutes 2 --seed 7 --round 2" in said
    assert "python tests/soak.py --recheck kept" in said
    assert "violations 1" in summary([bad()])


def test_a_round_broken_off_is_bad(capsys: pytest.CaptureFixture[str]) -> None:
    """A round without a verdict of the checker is not taken for a good one."""
    broken_off = Outcome(bad().round, broken_off="TimeoutError", kept=Path("kept"))
    assert verdict([broken_off], ["python", "tests/soak.py"]) == 1
    assert "broken off 1" in summary([broken_off])
    assert verdict([], ["python", "tests/soak.py"]) == 0
    assert capsys.readouterr().out.count("again:") == 2


def test_progress_says_what_is_broken() -> None:
    """Who looks on sees how far it is, what was granted, and what is broken at the moment."""
    state = State(bad().round, seen=Counter(began=5, LockLost=1), current=["FLUSHALL", "worker killed"])
    assert describe(state, 3.0, 120.0) == (
        "   3 of 120 s, round 2 on standalone: grants 5, lost 1, faults 0, "
        "broken now: FLUSHALL + worker killed"
    )


def test_a_kept_history_can_be_checked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a bad round left is enough to come to the same verdict."""
    (tmp_path / "judged-by.json").write_text('{"forgets": false, "slack": 4.0}')
    assert main(["--recheck", str(tmp_path)]) == 1
    assert "grants: 0, expected at least 1" in capsys.readouterr().out
