"""The fault matrix around the lock: a log sink, a meter or a tracer that raises, at each event.

Each story provokes some events, for bodies of all kinds at once. Its outcome must be that of the control, in
which nothing is broken.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from process_bodies import KINDS, MISTAKEN
from process_scene import LEASE, Scene, assert_told, either, in_time, scene
from process_sinks import broken
from servers import command
from stage import Kind

from lock_interceptor.dev import RedisServer
from lock_interceptor.testing import FaultyLockStore

ROUGHLY = LEASE + 0.5
LONG = 2 * LEASE


@dataclass
class Actor:
    """One kind's part in a story: its own application, and a store that fails when told to."""

    scene: Scene
    kind: str

    async def play(self, story: "Story") -> list[str]:
        """Live through the story, and take the lock once more."""
        self.stores: list[FaultyLockStore] = []
        changes = {"max_wait": timedelta(seconds=0.4)} if story is parked else {}
        async with self.scene.worker(self._faulty, **changes) as self.worker:
            outcome = await in_time(story(self), "a story ends")
            await self.scene.until_free(LEASE + 5)
            async with self.scene.worker() as other:
                return [outcome, await in_time(other.do(self.kind, 0.05, "next"), "the next body ends")]

    def _faulty(self, store: object) -> FaultyLockStore:
        self.stores.append(FaultyLockStore(store))  # type: ignore[arg-type]
        return self.stores[-1]

    def start(self, seconds: float) -> "asyncio.Future[str]":
        """Start a body."""
        return asyncio.ensure_future(self.worker.do(self.kind, seconds, "first"))


Story = Callable[[Actor], Awaitable[str]]


async def held(actor: Actor) -> str:
    """It takes the lock and gives it back."""
    return await actor.worker.do(actor.kind, 0.05, "first")


async def waited(actor: Actor) -> str:
    """It waits, and its connection for wake-ups is cut meanwhile."""
    async with actor.scene.somebody_else():
        body = actor.start(0.05)
        await either(body, actor.scene.until_somebody_waits())
        await asyncio.sleep(0.1)
        command(actor.scene.server, "CLIENT", "KILL", "TYPE", "pubsub")
        await asyncio.sleep(0.1)
    return await body


async def parked(actor: Actor) -> str:
    """It waits for longer than one attempt may."""
    async with actor.scene.somebody_else():
        return await actor.start(0.05)


async def doubtful(actor: Actor) -> str:
    """Renewals fail for less than a lease."""
    (store,) = actor.stores
    body = actor.start(LONG)
    await either(body, actor.scene.saw("first", "began"))
    with store.unavailable("renew"):
        await asyncio.sleep(LEASE / 2)
    return await body


async def lost(actor: Actor) -> str:
    """The server forgets it."""
    body = actor.start(LONG)
    await either(body, actor.scene.saw("first", "began"))
    actor.scene.forget()
    return await body


async def run_out(actor: Actor) -> str:
    """Renewals fail for longer than a lease."""
    body = actor.start(LONG)
    await either(body, actor.scene.saw("first", "began"))
    with actor.stores[0].unavailable("renew"):
        return await body


async def unavailable(actor: Actor) -> str:
    """The store does not answer when it is asked for the lock."""
    with actor.stores[0].unavailable("acquire"):
        body = actor.start(0.05)
        await asyncio.sleep(0.2)
    return await body


async def not_given_back(actor: Actor) -> str:
    """The store does not answer when the lock is given back, until its lease is over."""
    with actor.stores[0].unavailable("release"):
        outcome = await actor.worker.do(actor.kind, 0.05, "first")
        await asyncio.sleep(ROUGHLY)
    return outcome


async def mistaken(actor: Actor) -> str:
    """Its key function is wrong."""
    return await actor.worker.do(actor.kind, 0.05, "first", bodies=MISTAKEN)


OUTCOMES: dict[Story, str] = {
    held: "done",
    waited: "done",
    parked: "LockNotAcquired",
    doubtful: "done",
    lost: "LockLost",
    run_out: "LockLost",
    unavailable: "done",
    not_given_back: "done",
    mistaken: "LockConfigurationError",
}
UNTIDY = (parked, not_given_back)
"""Here the place or the lock goes by itself, when its time is over."""
LOG: list[tuple[str, Story]] = [
    ("lock.acquired", held),
    ("lock.released", held),
    ("lock.waiting", waited),
    ("lock.wakeups_interrupted", waited),
    ("lock.parked", parked),
    ("lock.doubtful", doubtful),
    ("lock.recovered", doubtful),
    ("lock.doubtful", run_out),
    ("lock.lost", lost),
    ("lock.lost", run_out),
    ("lock.store_unavailable", unavailable),
    ("lock.release_failed", not_given_back),
    ("lock.store_error", not_given_back),
    ("lock.misconfigured", mistaken),
]
METER: list[tuple[str, Story]] = [
    ("metric_meter()", held),
    ("create", held),
    ("lock_interceptor_granted", held),
    ("lock_interceptor_waited", held),
    ("lock_interceptor_held", held),
    ("lock_interceptor_holding", held),
    ("lock_interceptor_waiting", waited),
    ("lock_interceptor_parked", parked),
    ("lock_interceptor_doubtful", doubtful),
    ("lock_interceptor_store_errors", doubtful),
    ("lock_interceptor_lost", lost),
    ("lock_interceptor_lost", run_out),
    ("lock_interceptor_store_errors", unavailable),
    ("lock_interceptor_store_errors", not_given_back),
    ("lock_interceptor_release_failed", not_given_back),
]
TRACER: list[tuple[str, Story]] = [
    ("is_recording()", held),
    ("lock.acquired", held),
    ("lock.released", held),
    ("lock.waiting", waited),
    ("lock.parked", parked),
    ("lock.lost", lost),
    ("lock.lost", run_out),
]
EVENTS = {"log": LOG, "meter": METER, "tracer": TRACER}
ROWS = [(sink, event, story) for sink, events in EVENTS.items() for event, story in events]
ROWS += [(sink, "*", story) for sink in EVENTS for story in (waited, run_out)]


async def play(story: Story, row: str, place: Scene) -> None:
    """Play a story with all kinds: each has the outcome that it has when nothing is broken."""
    actors = [
        Actor(replace(place, directory=place.directory / kind, application=f"{kind}-{uuid4()}"), kind)
        for kind in KINDS
    ]
    for actor in actors:
        actor.scene.directory.mkdir()
    results = await asyncio.gather(*(actor.play(story) for actor in actors), return_exceptions=True)
    expected = [OUTCOMES[story], "done"]
    wrong = [
        f"{actor.kind}: {result!r}, otherwise {expected}"
        for actor, result in zip(actors, results, strict=True)
        if result != expected
    ]
    assert not wrong, f"{row}: attempts ended in another way: {'; '.join(wrong)}"
    assert_told(place.run, row)


@pytest.mark.parametrize(
    ("sink", "event", "story"), ROWS, ids=lambda value: getattr(value, "__name__", value)
)
async def test_a_sink_that_raises(  # noqa: PLR0917 - a row and its fixtures
    sink: str,
    event: str,
    story: Story,
    matrix_server: RedisServer,
    kinds: dict[str, Kind],
    tmp_path: Path,
) -> None:
    """No activity of any kind ends otherwise because watching it fails, and who lost its lock is told."""
    row = f"{sink} raises at {event}, {story.__name__}"
    with scene(matrix_server, tmp_path, kinds["process"].executor, row, tidy=story not in UNTIDY) as place:
        with place.run.fault(row), broken(sink, event) as watching:
            await play(story, row, place)
        assert watching.raised >= len(KINDS), f"{row}: the story does not provoke it"
        # a report may name the error twice
        assert watching.reports <= 2, f"{row}: it was reported {watching.reports} times: {watching.said}"


@pytest.mark.parametrize("story", OUTCOMES, ids=lambda story: story.__name__)
async def test_the_control(
    story: Story, matrix_server: RedisServer, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    """With nothing broken the stories have these outcomes, and provoke these events."""
    row = f"control, {story.__name__}"
    with scene(matrix_server, tmp_path, kinds["process"].executor, row, tidy=story not in UNTIDY) as place:
        with place.run.fault(row), ExitStack() as listening:
            seen = {sink: listening.enter_context(broken(sink, "")).seen for sink in EVENTS}
            await play(story, row, place)
        for sink, events in EVENTS.items():
            missing = {name for name, each in events if each is story} - set(seen[sink])
            assert not missing, f"{row}: the {sink} was never told of {missing}"
