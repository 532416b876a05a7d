"""Two attempts of one activity at once: the earlier one was stalled, and does not know that it is over."""

import itertools
from collections.abc import Iterator

import pytest
from store_cases import LEASE, PRESENCE, Bench, RedisBench

from lock_interceptor.store import Claim, Granted, Party, Waiting

pytest_plugins = ["store_fixtures"]

DOINGS = ("asks", "parks", "leaves")
NUMBERS = [(1, 1), (1, 2)]
"""Which attempts they are: the store may not know which one is the later, or it may."""


def attempts(bench: Bench, numbers: tuple[int, int] = (1, 1), *, limit: int = 1) -> tuple[Claim, Claim]:
    """The earlier and the later attempt of one activity."""
    earlier, later = (
        bench.claim(f"attempt-{which}", "activity", limit=limit, party=Party(attempt=number))
        for which, number in zip("ab", numbers, strict=True)
    )
    return earlier, later


async def do(bench: Bench, claim: Claim, doing: str) -> None:
    """Let an attempt do this while somebody else holds the lock."""
    if doing == "asks":
        await bench.wait(claim)
    elif doing == "parks":
        await bench.park(claim)
    else:
        assert not await bench.release(claim)


class Expected:
    """Who is present, and whether the place is still before that of the one who came after the first."""

    def __init__(self, numbers: tuple[int, int]) -> None:
        self.numbers = numbers
        self.present: set[int] = set()
        self.known = self.ahead = False

    def does(self, which: int, doing: str) -> None:
        """An attempt does this: it ends those before it, and takes away its own presence only."""
        self.present = {each for each in self.present if self.numbers[each] >= self.numbers[which]} - {which}
        if doing == "asks":
            self.present.add(which)
        elif doing == "leaves" and not self.present:
            self.ahead = False

    def goes_first(self) -> bool:
        """Whether nobody who came later may be granted the lock now."""
        return self.ahead and bool(self.present)


def all_orders() -> Iterator[tuple[tuple[int, str], ...]]:
    """What the two may do, in every order."""
    steps = list(itertools.product((0, 1), DOINGS))
    for length in (1, 2, 3):
        yield from itertools.product(steps, repeat=length)


@pytest.mark.parametrize("numbers", NUMBERS)
async def test_who_came_later_overtakes_no_attempt(bench: Bench, numbers: tuple[int, int]) -> None:
    """Whatever the two do, in whatever order: while one is present, the place is before who came later."""
    seen = {True: 0, False: 0}
    for number, order in enumerate(all_orders()):
        case = Bench(bench.store, bench.clock)
        both, holder, behind = attempts(case, numbers), case.claim("holder"), case.claim("behind")
        expected = Expected(numbers)
        await case.hold(holder)
        await case.wait(both[0])
        await case.wait(behind)
        await case.wait(both[1])
        expected.ahead = True
        expected.does(0, "asks")
        expected.does(1, "asks")
        for which, doing in order:
            await do(case, both[which], doing)
            expected.does(which, doing)
        await case.release(holder)
        answer = await case.ask(behind)
        assert isinstance(answer, Waiting) is expected.goes_first(), (number, order)
        seen[expected.goes_first()] += 1
        if expected.goes_first():
            assert isinstance(await case.ask(both[min(expected.present)]), Granted), order
    assert min(seen.values()) > 10


@pytest.mark.parametrize("asks", ["before the grant", "after the grant"])
@pytest.mark.parametrize("gives_back", ["with its ticket", "without", "when its lease is over"])
@pytest.mark.parametrize("numbers", NUMBERS)
async def test_a_grant_to_the_stalled_one_costs_no_place(
    bench: Bench, asks: str, gives_back: str, numbers: tuple[int, int]
) -> None:
    """What the earlier one was granted and gives back is for the later one, who is called, nobody else."""
    (earlier, later), holder = attempts(bench, numbers), bench.claim("holder")
    behind, last = bench.claim("behind"), bench.claim("last")
    await bench.hold(holder)
    await bench.wait(earlier)
    await bench.wait(behind)
    if asks == "before the grant":
        await bench.wait(later)
    await bench.release(holder)
    granted = await bench.hold(earlier)
    if asks == "after the grant":
        await bench.wait(later)
    await bench.wait(last)
    if gives_back == "when its lease is over":
        bench.clock.step(LEASE)  # longer than anybody's presence
        holder = bench.claim("another")
        await bench.hold(holder)
        await bench.wait(behind)
        await bench.wait(later)
    async with bench.listening(behind, later) as events:
        await bench.park(earlier, ticket=0 if gives_back == "without" else granted.ticket)
        if gives_back == "when its lease is over":
            await bench.release(holder)
        assert await bench.woken(events) == {later.owner}
    await bench.wait(behind)
    assert await bench.line() == ["activity", "for-behind", "for-last"]
    assert isinstance(await bench.ask(later), Granted)


@pytest.mark.parametrize("doing", ["parks", "leaves", "is granted the lock"])
async def test_a_later_attempt_takes_over(bench: Bench, doing: str) -> None:
    """An attempt that yielded a moment ago counts as present until the next one comes, and no longer."""
    (earlier, later), holder, behind = attempts(bench, (1, 2)), bench.claim("holder"), bench.claim("behind")
    await bench.hold(holder)
    await bench.wait(earlier)
    await bench.wait(behind)
    await bench.wait(later)
    if doing == "is granted the lock":
        await bench.release(holder)
        await bench.hold(later)
        await bench.release(later)
        assert await bench.line() == ["for-behind"]
    else:
        await do(bench, later, doing)
        await bench.release(holder)
    await bench.hold(behind)


async def test_each_is_present_for_its_own_time(bench: Bench) -> None:
    """An attempt that no longer asks keeps nobody up for longer than it said, whatever the other one said."""
    (earlier, later), holder, behind = attempts(bench), bench.claim("holder"), bench.claim("behind")
    await bench.hold(holder)
    await bench.wait(earlier, presence=4)
    await bench.wait(later, presence=15)
    await bench.wait(behind, presence=60)
    await bench.park(later)
    await bench.release(holder)
    bench.clock.step(3.999)
    await bench.wait(behind)
    bench.clock.step(0.001)
    await bench.hold(behind)


async def test_presences_move_with_the_clock(bench: Bench) -> None:
    """A clock that is set back makes no attempt present for longer than it said."""
    (earlier, later), holder, behind = attempts(bench), bench.claim("holder"), bench.claim("behind")
    await bench.hold(holder)
    await bench.wait(earlier, presence=4)
    await bench.wait(later, presence=15)
    bench.clock.step(-3600)
    await bench.wait(behind, presence=60)
    await bench.park(later)
    await bench.release(holder)
    await bench.wait(behind)
    bench.clock.step(4)
    await bench.hold(behind)


async def test_of_two_places_the_first_is_kept(bench: Bench) -> None:
    """Parking never moves a waiter back: a place that a grant used up counts only if it was further ahead."""
    earlier, later = attempts(bench, limit=2)
    holders = [bench.claim(f"holder{n}", limit=2) for n in range(2)]
    first, second = (bench.claim(owner, limit=2) for owner in ("first", "second"))
    for holder in holders:
        await bench.hold(holder)
    await bench.wait(later)
    await bench.wait(first)
    await bench.park(later)
    forgotten = 300_000_000_009
    await bench.park(earlier, ticket=forgotten)
    await bench.wait(second)
    assert await bench.line() == ["activity", "for-first", "for-second"]


async def test_many_attempts_leave_little_behind(redis_bench: RedisBench) -> None:
    """However many attempts stand in one place, the record of it stays small."""
    bench = redis_bench
    await bench.hold(bench.claim("holder"))
    for number in range(50):
        await bench.wait(bench.claim(f"attempt{number}", "activity"))
    (record,) = [member for member in bench.members() if member.startswith("iactivity")]
    assert record.count("=") == 3
    assert [waiter.party for waiter in (await bench.look()).waiters] == [Party()]


@pytest.mark.parametrize("doing", ["parks", "leaves"])
async def test_a_place_that_an_older_version_noted(redis_bench: RedisBench, doing: str) -> None:
    """It does not say whose it is, and counts as that of whoever gives it up."""
    bench = redis_bench
    (one, _), holder, behind = attempts(bench), bench.claim("holder"), bench.claim("behind")
    await bench.hold(holder)
    await bench.wait(one)
    await bench.wait(behind)
    (record,) = [member for member in bench.members() if member.startswith("iactivity")]
    score = bench.members()[record]
    bench.redis("ZREM", bench.key, record)
    bench.redis("ZADD", bench.key, score, "iactivity|{}")
    await do(bench, one, doing)
    await bench.release(holder)
    await bench.hold(behind)


async def test_they_may_hold_two_slots(bench: Bench) -> None:
    """With several slots both may be granted; then nothing of them is left in the line."""
    earlier, later = attempts(bench, limit=2)
    holders = [bench.claim(f"holder{n}", limit=2) for n in range(2)]
    for holder in holders:
        await bench.hold(holder)
    await bench.wait(earlier)
    await bench.wait(later)
    for holder in holders:
        await bench.release(holder)
    one, two = await bench.hold(earlier), await bench.hold(later)
    assert one.slot != two.slot
    assert await bench.line() == []
    bench.clock.step(PRESENCE)
    assert await bench.owners() == ["attempt-a", "attempt-b"]
