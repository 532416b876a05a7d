"""The store alone: pairs of acquire and release, against the floor and other libraries' locks."""

from collections.abc import Sequence
from dataclasses import dataclass

from contestants import Contestant, Floor, SharedFloor, Store, Waiting, installed_peers
from measuring import Bench, percentile

from lock_interceptor.dev import RedisServer


async def measure(bench: Bench) -> None:
    peers, missing = installed_peers()
    for text in missing:
        bench.results.remark(text)
    with RedisServer() as server:
        alone: list[Contestant] = [kind(server.url) for kind in (Floor, SharedFloor, Store, *peers)]
        shared: list[Contestant] = [kind(server.url) for kind in (Waiting, *peers)]
        for number in range(bench.first_round, bench.rounds):  # the first one warms up
            for tasks in bench.size((1, 10, 50, 200), (1, 3)):
                bench.say(f"{_round(number)}, {_tasks(tasks)} with a lock each")
                for contestant in bench.order(alone, number):
                    locks = [f"own-{contestant.name}-{task}" for task in range(tasks)]
                    took = await contestant.pairs(locks, seconds := bench.size(0.4, 0.1))
                    if number >= 0:
                        _note(bench, "a lock each", _tasks(tasks), contestant.name, Took(took, seconds))
            for tasks in bench.size((10, 50, 200), (3,)):
                bench.say(f"{_round(number)}, {_tasks(tasks)} with one lock")
                for contestant in bench.order(shared, number):
                    # long enough for all to get into line, and for the line to move
                    took = await contestant.pairs(
                        [f"one-{contestant.name}"] * tasks, seconds := bench.size(1.2, 0.1)
                    )
                    if number >= 0:
                        _note(bench, "one lock", _tasks(tasks), contestant.name, Took(took, seconds))
            await _limits(bench, number, shared[0])
        for contestant in (*alone, *shared):
            await contestant.close()


async def _limits(bench: Bench, number: int, ours: Contestant) -> None:
    """What others do not have: more than one holder."""
    for limit, tasks in bench.size(((10, 50), (10, 200), (1000, 50), (1000, 200)), ((2, 3),)):
        bench.say(f"{_round(number)}, {_tasks(tasks)} with one lock of {limit:,}")
        took = await ours.pairs([f"limit-{limit}"] * tasks, seconds := bench.size(1.0, 0.1), limit)
        if number >= 0:
            case = f"{_tasks(tasks)}, limit {limit:,}"
            _note(bench, "one lock with a limit", case, ours.name, Took(took, seconds))


@dataclass(frozen=True)
class Took:
    """What pairs took that ended within so many seconds."""

    pairs: Sequence[float]
    seconds: float


def _note(bench: Bench, what: str, case: str, who: str, took: Took) -> None:
    bench.add(f"pairs a second, {what}", case, who, "/s", len(took.pairs) / took.seconds)
    for part, name in ((0.5, "p50"), (0.99, "p99")):
        # none has ended: it takes at least as long as the window
        value = percentile(took.pairs, part) if took.pairs else took.seconds
        bench.add(f"{name} of a pair, {what}", case, who, "ms", value * 1000)


def _round(number: int) -> str:
    return f"round {number + 1}" if number >= 0 else "warm-up"


def _tasks(count: int) -> str:
    return f"{count:,} task{'s' * (count > 1)}"
