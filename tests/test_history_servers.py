"""Histories of real servers: what the recorder sees, and that faults put into the scripts are found."""

import asyncio
import contextlib
import functools
import hashlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import history
import pytest
from history import Expectations
from history.audit import MARKER
from history.expectations import BETWEEN
from patience import waiting
from redis_tools import eventually, new_claim, open_store, settings_for, take, until_answered
from servers import command
from store_cases import LEASE, RedisBench

from lock_interceptor.dev import RedisServer
from lock_interceptor.errors import LockError
from lock_interceptor.redis_store import scripts
from lock_interceptor.redis_store.scripts import Script

pytest_plugins = ["store_fixtures"]

NAMES = ["acquire", "park", "release", "renew"]


@pytest.mark.parametrize("name", [*NAMES, "inspect"])
def test_users_get_no_recorder(name: str) -> None:
    """Scripts as they are shipped hold nothing of it, and one place where tests may put it."""
    text = scripts.load(name).text
    assert text.count(MARKER) == 1
    assert "audit" not in text


async def turns(bench: RedisBench) -> None:
    """What owners may do with a lock of two slots, whatever comes of it."""
    one, two, three, four, five, stranger = (bench.claim(name, limit=2) for name in "123456")
    ask, renew, release, park = bench.ask, bench.renew, bench.release, bench.park
    script: list[tuple[Callable[..., Any], Any]] = [
        *((ask, claim) for claim in (one, two, three, four, five, one)),
        *((release, five), (renew, one), (park, three), (release, stranger), (release, one)),
        *((ask, claim) for claim in (five, four, three)),
        (bench.clock.step, LEASE - 10),
        *((renew, four), (ask, four), (renew, three), (ask, three)),
        (bench.clock.step, 10),  # the lease of two is over
        *((renew, two), (ask, three), (ask, five)),
        (bench.clock.step, -3600),
        *((renew, three), (release, three), (release, four), (release, two), (ask, five), (release, five)),
    ]
    for do, what in script:
        with contextlib.suppress(LookupError, LockError):  # as those who use a store that is broken
            result = do(what)
            if asyncio.iscoroutine(result):
                await result


async def test_everything_is_seen(redis_bench: RedisBench, tmp_path: Path) -> None:
    """Grants, renewals, places, expiries and a clock that steps back come out of the server's log."""
    with history.recording(tmp_path, redis_bench.server) as run:
        await turns(redis_bench)
        seen = {"grants": 5, "waits": 5, "asked again": 2, "renewals": 3, "renewals refused": 1, "parked": 1}
        seen |= {"leases run out": 1, "clock steps back": 1, "left the line": 3, "releases": 4}
        none = {"unclear answers": 0, "errors in scripts": 0}
        report = history.check(run.rows(), run.notes(), Expectations(at_least=seen, at_most=none, tidy=False))
    assert not report.unmet, str(report)
    # leases end by the told time, of which the clients' clock knows nothing
    assert report.rules <= {"S2"}, str(report)


FAULTS = [
    ("S1", "acquire", "free > rank", "free + 1 > rank"),
    ("S9", "acquire", "free > rank", "free > 0"),
    ("L2", "acquire", "free > rank", "free > rank + 1"),
    ("S4", "acquire", "math.max((noted(newest) or 0) + 1, us)", "noted(newest) or us"),
    ("S12", "acquire", "low, 's' .. owner", "0, 's' .. owner"),
    ("L4", "acquire", "local place = ticket or", "local place ="),
    ("S8", "acquire", "put(now + lease_ms, 'h'", "put(now + lease_ms - 1, 'h'"),
    ("S6", "acquire", "each(1e12, now,", "each(1e12, now + 30000,"),
    ("S7", "renew", "if not expiry then", "if false then"),
    ("L2", "release", "\nhand_on(limit, noted(longest), queue)\n", "\n"),
    ("L8", "release", "  if place then step_out", "  if false then step_out"),
    ("S11", "release", "\nhand_on(limit,", "\nredis.call('ZCARD', key .. 'x')\nhand_on(limit,"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "name", "right", "wrong"), FAULTS, ids=[f"{rule}-{name}" for rule, name, *_ in FAULTS]
)
async def test_a_fault_in_a_script_is_found(  # noqa: PLR0917 - pytest's, by name
    redis_bench: RedisBench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    name: str,
    right: str,
    wrong: str,
) -> None:
    """Owners that do as they may make a history in which the fault shows."""
    load = scripts.load

    @functools.cache
    def load_wrong(which: str) -> Script:
        script = load(which)
        if which != name:
            return script
        assert right in script.text
        text = script.text.replace(right, wrong)
        return Script(which, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

    monkeypatch.setattr(scripts, "load", load_wrong)
    with history.recording(tmp_path, redis_bench.server) as run:
        await turns(redis_bench)
        report = history.check(run.rows(), run.notes(), Expectations(tidy=False))
    assert rule in report.rules, str(report)


async def test_what_a_server_forgot_is_counted(tmp_path: Path) -> None:
    """Who still believes in what FLUSHALL deleted or a restart forgot overlaps, and that is told apart."""
    with RedisServer() as server, history.recording(tmp_path, server) as run:
        async with open_store(server) as store:
            lock = new_claim().lock
            await take(store, new_claim(lock))
            command(server, "FLUSHALL")
            await take(store, new_claim(lock))
            server.kill()
            server.start()
            claim = new_claim(lock)
            await until_answered(lambda: store.acquire(claim, lease=timedelta(seconds=30)))
        seen = {"grants": 3, "grants forgotten": 2, BETWEEN: 2, "servers": 2}
        report = run.check(Expectations(at_least=seen, at_most=seen, tidy=False))
    assert report.counts["most believers at once"] == 3


async def test_two_primaries_are_told_apart(valkey: RedisServer, redis7: RedisServer, tmp_path: Path) -> None:
    """Two servers that grant one lock at once, as in a split brain, are caught unless the test expects it."""
    first = new_claim()
    claims = [first, new_claim(first.lock)]
    with history.recording(tmp_path, valkey, redis7) as run:
        for server, claim in zip((valkey, redis7), claims, strict=True):
            async with open_store(server) as store:
                await take(store, claim)
        run.check(Expectations(at_least={BETWEEN: 1}, tidy=False))
        with pytest.raises(AssertionError, match="2 of 1 believe, by 2 histories"):
            run.check(Expectations(tidy=False))


async def test_a_loss_is_seen_and_explained(tmp_path: Path) -> None:
    """A server that hangs for longer than a lease costs it, and the history says who was told, and why."""
    lease = timedelta(seconds=1)
    with RedisServer() as server, history.recording(tmp_path, server) as run:
        async with (
            open_store(settings_for(server.url, lease=lease)) as store,
            waiting(store, new_claim(), lease=lease) as task,
        ):
            hold = await task
            with run.fault("paused"):
                server.pause()
                await eventually(lambda: hold.lease.lost, "the end of the lease")
                server.resume()
            await eventually(lambda: any(note.what == "told" for note in run.notes()), "its being told")
        lost = {"lost": 1, "told": 1, "explained": 1, "faults": 1}
        run.check(Expectations(at_least=lost, at_most=lost))


def test_a_fenced_resource(tmp_path: Path) -> None:
    """It refuses a token that is older than one it has seen in the same slot, also when it is opened anew."""
    with history.recording(tmp_path) as run:
        writes = [(5, 0), (5, 0), (4, 1), (4, 0), (6, 0)]
        answers = [run.resource.write(token, slot=slot) for token, slot in writes]
        again = history.FencedResource(tmp_path).write(5)
        counts: dict[str, Any] = dict(history.check([], run.notes(), Expectations()).counts)
    assert answers == [True, True, True, False, True]
    assert not again
    assert (counts["writes accepted"], counts["writes refused"]) == (4, 2)
