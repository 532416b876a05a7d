"""Which faults strike when in a soak. A pure function of the seed: nothing looks at a clock or a server."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

LEASE = 5.0
"""Seconds. A tenth of it is the time for an answer, in which a busy machine has to make a connection, too."""
TOPOLOGIES = ("standalone", "sentinel", "cluster")
USUAL = ("standalone", "sentinel")
ROUND = 60.0
"""Seconds, at most: the history of one round is checked at once, and then forgotten."""
SHORT, LONG = (0.1, 0.5), (1.1, 1.5)
"""Leases that outages last: what is held outlives the short ones."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    name: str
    lane: str
    """What it strikes; two faults of one lane never overlap, since each would undo the other."""
    leases: tuple[float, float] = (0.0, 0.0)
    """How long it lasts, from and to, in leases."""
    on: tuple[str, ...] = TOPOLOGIES
    forgets: bool = False
    """What was granted is forgotten at once, so that old and new beliefs overlap for a while."""
    costs: bool = False
    """It outlasts leases. Bodies do not end meanwhile, so that there are leases to be lost."""

    @property
    def lanes(self) -> set[str]:
        """What must not be struck by anything else meanwhile.

        Nobody deploys in a long outage: workers that are to end would first have to be able to give back.
        """
        return {self.lane, "deploy"} if self.costs else {self.lane}


ONE, TWO, THREE = ("standalone",), ("sentinel",), ("cluster",)
KINDS = (
    Kind("worker killed", "worker"),
    Kind("worker stopped for a moment", "worker", SHORT),
    Kind("worker stopped for long", "worker", LONG, costs=True),
    Kind("keeper hangs for a moment", "worker", SHORT),
    Kind("keeper hangs for long", "worker", LONG, costs=True),
    Kind("keeper dies", "worker", SHORT),
    Kind("keeper stays dead", "worker", LONG, costs=True),
    Kind("log breaks", "worker", LONG),
    Kind("limits and lease changed", "deploy"),
    Kind("SCRIPT FLUSH", "data"),
    Kind("CLIENT KILL normal", "data"),
    Kind("CLIENT KILL pubsub", "data"),
    Kind("DEL of a lock", "data", forgets=True),
    Kind("FLUSHALL", "data", forgets=True),
    Kind("connections cut", "network", on=ONE),
    Kind("connections refused", "network", SHORT, ONE),
    Kind("connections half-open", "network", SHORT, ONE),
    Kind("requests lost", "network", SHORT, ONE),
    Kind("replies lost", "network", SHORT, ONE),
    Kind("replies torn", "network", SHORT, ONE),
    Kind("latency", "network", LONG, ONE),
    Kind("black hole for a moment", "network", SHORT, ONE),
    Kind("black hole for long", "network", LONG, ONE, costs=True),
    Kind("server paused for a moment", "server", SHORT, ONE),
    Kind("server paused for long", "server", LONG, ONE, costs=True),
    Kind("server killed", "server", SHORT, ONE),
    Kind("server out of memory", "server", SHORT, ONE),
    Kind("server read-only", "server", SHORT, ONE),
    Kind("server busy", "server", SHORT, ONE),
    Kind("server misses replicas", "server", SHORT, ONE),
    Kind("primary killed", "server", SHORT, TWO + THREE),
    Kind("primary paused for a moment", "server", (0.05, 0.25), TWO + THREE),
    Kind("primary replaced on demand", "server", on=TWO + THREE),
    Kind("primary paused for long", "server", LONG, TWO, costs=True),
    Kind("replica paused", "server", SHORT, TWO),
    Kind("Sentinel killed", "server", SHORT, TWO),
)


@dataclass(frozen=True)
class Strike:
    """One fault."""

    kind: Kind
    after: float
    """Seconds after the beginning of its burst."""
    seconds: float
    pick: float
    """From 0 to 1: which one of several is struck."""


@dataclass(frozen=True)
class Burst:
    """Faults that overlap. After them everybody is granted again, and then there is a gap."""

    strikes: tuple[Strike, ...]
    gap: float


def bursts(seed: str, kinds: Sequence[Kind]) -> Iterator[Burst]:
    """Faults without end: every kind comes before one comes again.

    The first one costs leases, and is not alone.
    """
    random = Random(seed)  # noqa: S311 - it has to be repeatable
    deck = _shuffled(random, kinds)
    first = next(kind for kind in deck if kind.costs)
    deck.remove(first)
    deck.insert(0, first)
    sizes: tuple[int, ...] = (2, 3)
    while True:
        chosen: list[Kind] = []
        for _ in range(random.choice(sizes)):
            deck = deck or _shuffled(random, kinds)
            taken = {lane for kind in chosen for lane in kind.lanes}
            if fitting := next((kind for kind in deck if taken.isdisjoint(kind.lanes)), None):
                deck.remove(fitting)
                chosen.append(fitting)
        strikes = tuple(
            Strike(
                kind,
                after=random.uniform(0, LEASE / 2),
                seconds=random.uniform(*kind.leases) * LEASE,
                pick=random.random(),
            )
            for kind in chosen
        )
        sizes = (1, 2, 2, 3)
        yield Burst(strikes, gap=random.uniform(0.1, LEASE))


def _shuffled(random: Random, kinds: Sequence[Kind]) -> list[Kind]:
    return random.sample(kinds, len(kinds))


@dataclass(frozen=True)
class Round:
    """A part of a soak, with servers, workers and a history of its own."""

    number: int
    seed: str
    topology: str
    forgets: bool
    """Servers may be made to forget. In the other rounds no two beliefs may overlap, whatever happens."""
    seconds: float

    @property
    def kinds(self) -> list[Kind]:
        """The faults that there may be."""
        return [kind for kind in KINDS if self.topology in kind.on and (self.forgets or not kind.forgets)]

    @property
    def bursts(self) -> Iterator[Burst]:
        """The faults that there are."""
        return bursts(self.seed, self.kinds)


def rounds(seed: int, seconds: float, topologies: Sequence[str]) -> list[Round]:
    """All rounds of a soak: topologies in turn, each with servers that forget and with such that do not."""
    wide = len(topologies)
    count = max(wide * (2 if seconds >= 40 * wide else 1), round(seconds / ROUND))
    return [
        Round(
            number,
            f"{seed}/{number}",
            topologies[number % wide],
            forgets=(number // wide + number % wide) % 2 == 0,
            seconds=seconds / count,
        )
        for number in range(count)
    ]
