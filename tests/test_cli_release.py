"""``release``: a jam is found, and cleared without touching anybody else."""

import asyncio
import re

import pytest
from activities_under_test import in_coroutine
from lock_crowd import Crowd, put
from operator_cli import Ended, Operator, run_beside
from redis.asyncio import Redis
from servers import command
from stage import Stage

from lock_interceptor.dev import RedisServer
from lock_interceptor.ops import cli, releasing
from lock_interceptor.redis_store.keys import lock_key, wake_channel
from lock_interceptor.store import LockId

pytest_plugins = ["operator_fixtures"]


async def test_a_jam_is_found_and_cleared(stage: Stage) -> None:
    """A holder that never ends is found; released, its attempt ends as ``LockLost`` and the next goes on."""

    async def operator(*arguments: str) -> Ended:
        shell = {"REDIS_URL": stage.redis.url, "APPLICATION_NAME": stage.settings.application_name}
        return await run_beside(*arguments, **shell)

    async with stage.worker(in_coroutine):
        stuck = await stage.start("in_coroutine", stage.play(name="stuck", waits=True))
        await stage.saw("stuckbegan1")
        waiter = await stage.start("in_coroutine", stage.play(name="next"), heartbeat=1)
        await stage.until_waiting(1)

        listed, shown = await asyncio.gather(operator("list", "--json"), operator("show", "lock", "--json"))
        (lock,) = listed.json["locks"]
        assert (lock["lock"], lock["held"], lock["waiting"]) == ("lock", 1, 1)
        (holder,), (behind,) = shown.json["holders"], shown.json["line"]
        assert (holder["workflow"], holder["activity"]) == (stuck.id, "in_coroutine")
        assert (behind["workflow"], behind["state"]) == (waiter.id, "hot")

        released = await operator("release", "lock", "--token", str(holder["token"]), "--yes")
        assert released.status == cli.OK, released.err
        assert "slot 0 of lock is free" in released.out
        assert int((await waiter.result()).split()[0]) > holder["token"]
        await stage.saw("stuckcancelled1")
        await stage.failed_attempt(stuck, "LockLost")
        stage.cue("stuckgo")
        await stuck.result()


def jam(operator: Operator, server: RedisServer) -> tuple[LockId, list[int]]:
    """A lock with three holders and somebody in line; its tokens, by slot."""
    lock = LockId(operator.application, "jam", "north")
    put(server, [Crowd(lock, held=3, hot=1)])
    return lock, [holder["token"] for holder in operator.runs("show", "jam[north]", "--json").json["holders"]]


def test_only_the_one_that_is_named_loses_the_lock(operator: Operator, valkey: RedisServer) -> None:
    """The others, the line and how long holders usually take stay as they were."""
    lock, tokens = jam(operator, valkey)
    before = set(command(valkey, "ZRANGE", lock_key("lock", lock), 0, -1))
    done = operator.runs("release", "jam", "--key", "north", "--token", str(tokens[1]), "--yes", "--json")
    assert done.status == cli.OK
    assert done.json["released"] is True
    assert (done.json["token"], done.json["slot"]) == (tokens[1], 1)
    after = set(command(valkey, "ZRANGE", lock_key("lock", lock), 0, -1))
    assert {member.split("|")[0] for member in before - after} == {"h1", "t1", "s1", "i1"}
    assert after <= before
    (left, right) = operator.runs("show", "jam[north]", "--json").json["holders"]
    assert [left["token"], right["token"]] == [tokens[0], tokens[2]]


def test_the_next_in_line_is_woken(operator: Operator, valkey: RedisServer) -> None:
    """Whoever is first in line hears at once that a slot is free."""
    lock, tokens = jam(operator, valkey)

    async def heard() -> bool:
        async with Redis.from_url(valkey.url, decode_responses=True, protocol=2) as client:
            pubsub = client.pubsub()
            await pubsub.subscribe(wake_channel(lock_key("lock", lock)))
            assert (await pubsub.get_message(timeout=5))["type"] == "subscribe"
            ended = await run_beside("release", "jam[north]", "--token", str(tokens[0]), "--yes")
            assert ended.status == cli.OK, ended.err
            message = await pubsub.get_message(timeout=5)
            await pubsub.aclose()
            return message["data"] == "w0"

    assert asyncio.run(heard())


def test_a_token_that_nobody_has_is_refused(operator: Operator, valkey: RedisServer) -> None:
    """The holders that there are get named, and nothing is done; nor for a lock that there is not."""
    lock, tokens = jam(operator, valkey)
    before = command(valkey, "ZRANGE", lock_key("lock", lock), 0, -1)
    for wrong in ("1", "0", str(tokens[0] + 1)):
        refused = operator.runs("release", "jam[north]", "--token", wrong, "--yes")
        assert refused.status == cli.NOT_FOUND
        assert re.findall(r"slot (\d), token (\d+)", refused.err) == [
            (str(slot), str(token)) for slot, token in enumerate(tokens)
        ]
    assert operator.runs("release", "nothing", "--token", "1", "--yes").status == cli.NOT_FOUND
    assert command(valkey, "ZRANGE", lock_key("lock", lock), 0, -1) == before


@pytest.mark.parametrize(("answer", "status"), [("y", cli.OK), ("n", cli.DECLINED), ("", cli.DECLINED)])
def test_it_asks_and_says_what_it_means(
    answer: str, status: int, operator: Operator, valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody at a terminal is told who holds the lock and what will happen, and has to agree."""
    _, tokens = jam(operator, valkey)
    asked = []

    def confirm(question: str, **how: object) -> bool:
        asked.append((question, how))
        return answer == "y"

    monkeypatch.setattr(releasing.typer, "confirm", confirm)
    monkeypatch.setattr(releasing, "_somebody_is_there", lambda: True)
    ended = operator.runs("release", "jam[north]", "--token", str(tokens[2]))
    assert ended.status == status
    assert asked == [("Release it?", {"err": True})]
    for told in ("holder-2", "within a third of its lease", "LockLost", "two may run", "gone or stuck"):
        assert told in " ".join(ended.err.split())
    left = operator.runs("show", "jam[north]", "--json").json["held"]
    assert left == (2 if status == cli.OK else 3)


def test_without_a_terminal_it_has_to_be_told_yes(operator: Operator, valkey: RedisServer) -> None:
    """A script that forgets ``--yes`` changes nothing and hangs nowhere."""
    _, tokens = jam(operator, valkey)
    ended = operator.runs("release", "jam[north]", "--token", str(tokens[0]))
    assert ended.status == cli.USAGE
    assert "--yes" in ended.err
    assert operator.runs("show", "jam[north]", "--json").json["held"] == 3
