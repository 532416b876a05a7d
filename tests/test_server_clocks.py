"""A Redis clock that steps forward ends leases early: that is noticed, told once and counted."""

import pytest
from store_cases import LEASE, Bench, RedisBench
from structlog.testing import capture_logs

from lock_interceptor.lease import clock
from lock_interceptor.redis_store.server_clocks import DRIFT, TOLERANCE, ServerClocks

pytest_plugins = ["store_fixtures"]

LONG = 7200.0
HOUR = 3600.0
STEPPED = "lock.clock_stepped"


async def _renew(bench: Bench, claim: object, lease: float = LONG) -> tuple[bool, list[dict[str, object]]]:
    """Renew, and see what was said of clocks."""
    with capture_logs() as logs:
        renewed = await bench.renew(claim, lease)
    return renewed, [entry for entry in logs if entry["event"] == STEPPED]


async def test_a_step_forward_is_told_once_and_counted(redis_bench: RedisBench) -> None:
    """The first renewal after a step tells of it, and how many there were; those after it do not."""
    bench, claim = redis_bench, redis_bench.claim("owner")
    await bench.hold(claim, lease=LONG)
    assert (await _renew(bench, claim))[1] == []
    for steps in (1, 2):
        bench.clock.step(60)
        _, (told,) = await _renew(bench, claim)
        assert (told["steps"], told["log_level"]) == (steps, "warning")
        assert told["seconds"] == pytest.approx(60, abs=5)
        assert str(bench.server.port) in str(told["redis"])
        assert (await _renew(bench, claim))[1] == []


async def test_a_step_that_ended_the_lease_is_told(redis_bench: RedisBench) -> None:
    """Who learns that the lease is over learns why."""
    bench, claim = redis_bench, redis_bench.claim("owner")
    await bench.hold(claim)
    assert (await _renew(bench, claim, LEASE))[1] == []
    bench.clock.step(HOUR)
    renewed, told = await _renew(bench, claim, LEASE)
    assert not renewed
    assert len(told) == 1


async def test_a_step_back_is_no_news(redis_bench: RedisBench) -> None:
    """What the scripts absorb is not told; that the clock is set right again afterwards is."""
    bench, claim = redis_bench, redis_bench.claim("owner")
    await bench.hold(claim, lease=LONG)
    await _renew(bench, claim)
    for step, news in ((-0.9, 0), (-HOUR, 0), (HOUR, 1)):
        bench.clock.step(step)
        renewed, told = await _renew(bench, claim)
        assert renewed
        assert len(told) == news


def test_time_that_passes_is_no_step() -> None:
    """Slow answers, clocks that drift a little and clocks of several servers are not taken for steps."""
    clocks, sent = ServerClocks(), clock() - 100
    with capture_logs() as logs:
        clocks.heard("one", 1_000_000_000_000, sent)
        clocks.heard("two", 2_000_000_000_000, sent)
        # 100 seconds later, by a clock that goes too fast
        later = 100_000 * (1 + DRIFT) + TOLERANCE * 1000
        clocks.heard("one", 1_000_000_000_000 + int(later), clock())
        clocks.heard("two", 2_000_000_000_000 + 100_000, clock() - 90)
        assert (clocks.steps, logs) == (0, [])
        clocks.heard("two", 2_000_000_000_000 + 300_000, clock())
    assert clocks.steps == 1
