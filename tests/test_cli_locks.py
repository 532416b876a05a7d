"""``list`` and ``show``: what stands in Redis, told to whoever is on call."""

import time

import pytest
import redis
from acl_users import allow
from lock_crowd import Crowd, put
from operator_cli import Operator
from rights import least_rights
from servers import command, info

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.ops import cli
from lock_interceptor.redis_store.keys import lock_key
from lock_interceptor.store import LockId

pytest_plugins = ["operator_fixtures"]


def calls(server: RedisServer) -> dict[str, int]:
    """How often each command was called so far."""
    return {
        name.removeprefix("cmdstat_"): int(value.split(",")[0].removeprefix("calls="))
        for name, value in info(server, "commandstats").items()
    }


def test_list_shows_the_longest_lines_first(operator: Operator, valkey: RedisServer) -> None:
    """Locks come by how many wait, then by how many hold; those that nobody uses are counted only."""
    app = operator.application
    put(
        valkey,
        [
            Crowd(LockId(app, "calm"), held=2),
            Crowd(LockId(app, "calmer"), held=1),
            Crowd(
                LockId(app, "jam", "north"), held=3, hot=2, parked=5, limit=3, waits_since=time.time() - 90
            ),
            Crowd(LockId(app, "idle"), held=0),
            Crowd(LockId(f"{app}-other", "foreign"), held=1),
        ],
    )
    table = operator.runs("list")
    assert table.status == cli.OK
    assert table.out.index("jam[north]") < table.out.index("calm ") < table.out.index("calmer")
    assert "foreign" not in table.out
    assert "idle " not in table.out
    assert f"3 locks in use in application {app}, and 1 idle: 6 held, 7 waiting" in table.out

    found = operator.runs("list", "--json").json
    jam = found["locks"][0]
    assert (jam["lock"], jam["name"], jam["key"], jam["application"]) == ("jam[north]", "jam", "north", app)
    assert (jam["held"], jam["limit"], jam["waiting"], jam["parked"]) == (3, 3, 7, 5)
    assert 90 <= jam["oldest_wait_seconds"] < 150
    assert 15 <= jam["longest_hold_seconds"] < 75
    assert found["locks"][1]["limit"] is None
    assert found["locks"][1]["oldest_wait_seconds"] is None
    assert found["total"] == {"locks": 3, "idle": 1, "held": 6, "waiting": 7}
    assert found["complete"]


def test_list_can_be_narrowed_and_widened(operator: Operator, valkey: RedisServer) -> None:
    """A name with wildcards, another application, all of them, idle ones, and how many."""
    app = operator.application
    names = [LockId(app, "jam", "north"), LockId(app, "jam", "south"), LockId(app, "jam"), LockId(app, "jar")]
    put(valkey, [*(Crowd(lock) for lock in names), Crowd(LockId(app, "idle"), held=0)])
    put(valkey, [Crowd(LockId(f"{app}-other", "jam"))])

    def shown(*arguments: str) -> list[str]:
        found = operator.runs("list", "--json", *arguments)
        assert found.status == cli.OK
        return [each["lock"] for each in found.json["locks"] if app in each["application"]]

    assert shown("jam") == ["jam", "jam[north]", "jam[south]"]
    assert shown("jam[*]") == ["jam[north]", "jam[south]"]
    assert shown("jam[north]") == ["jam[north]"]
    assert shown("ja?") == ["jam", "jam[north]", "jam[south]", "jar"]
    assert shown("--idle") == ["jam", "jam[north]", "jam[south]", "jar", "idle"]
    assert shown("--limit", "2") == ["jam", "jam[north]"]
    assert shown("--app", f"{app}-other") == ["jam"]
    assert shown("jam", "--all", "--limit", "10000").count("jam") == 2
    assert "the first 2 are shown" in operator.runs("list", "--limit", "2").out
    assert "application" in operator.runs("list", "--all").out
    assert operator.runs("list", "nothing*").out.startswith("0 locks named nothing* in use")


def test_list_looks_at_twenty_thousand_locks_in_small_steps(operator: Operator) -> None:
    """Many locks cost some hundred round trips and no request that walks the keyspace at once."""
    with RedisServer() as server:
        app = operator.application
        put(server, (Crowd(LockId(app, f"lock-{n}"), hot=n % 7) for n in range(20_000)))
        operator.exports(REDIS_URL=server.url)
        calls_before, before = calls(server), info(server, "stats")
        found = operator.runs("list", "--json", "--limit", "3")
        calls_after, after = calls(server), info(server, "stats")

    assert found.status == cli.OK
    assert found.json["total"]["locks"] == 20_000
    assert found.json["total"]["waiting"] == sum(n % 7 for n in range(20_000))
    assert [each["waiting"] for each in found.json["locks"]] == [6, 6, 6]
    made = {name: count - calls_before.get(name, 0) for name, count in calls_after.items()}
    assert made.get("keys", 0) == 0
    assert 20 <= made["scan"] <= 60
    assert made["eval"] + made["evalsha"] == 20_000
    assert int(after["total_reads_processed"]) - int(before["total_reads_processed"]) < 1_000


def test_list_needs_scan_besides_a_workers_rights(operator: Operator, valkey: RedisServer) -> None:
    """A worker's user and SCAN are enough; without SCAN the command says that it is refused."""
    put(valkey, [Crowd(LockId(operator.application, "jam"), hot=1)])
    operator.exports(REDIS_URL=allow(valkey, *least_rights()))
    refused = operator.runs("list")
    assert refused.status == cli.MISCONFIGURED
    assert "scan" in refused.err

    operator.exports(REDIS_URL=allow(valkey, *least_rights(), "+scan"))
    assert operator.runs("list", "--json").json["total"]["waiting"] == 1


def test_show_needs_no_more_than_a_workers_rights(operator: Operator, valkey: RedisServer) -> None:
    """One lock is looked at with the rights of a worker."""
    put(valkey, [Crowd(LockId(operator.application, "jam", "north"), hot=1)])
    operator.exports(REDIS_URL=allow(valkey, *least_rights(profile="primary", database=False)))
    assert operator.runs("show", "jam[north]").status == cli.OK
    assert operator.runs("show", "nothing").status == cli.NOT_FOUND


def test_show_tells_who_holds_and_who_waits(operator: Operator, valkey: RedisServer) -> None:
    """Holders come by slot, and the line in order, hot or parked, each with what it may expect."""
    lock = LockId(operator.application, "jam", "north")
    put(valkey, [Crowd(lock, held=2, hot=1, parked=2, limit=2, extra={"#m": -4e15 - 10_000})])
    shown = operator.runs("show", "jam[north]")
    assert shown.status == cli.OK
    assert "2 of 2 held, 3 waiting (1 of them hot); a holder usually takes 10 s" in shown.out
    rows = [" ".join(line.split()) for line in shown.out.splitlines()]
    line = [row for row in rows if "waiter-" in row]
    assert [row.split()[0] for row in line] == ["1", "2", "3"]
    assert ["hot" in row for row in line] == [True, False, False]
    assert ["parked" in row for row in line] == [False, True, True]

    found = operator.runs("show", "jam", "--key", "north", "--json", "--waiters", "2").json
    assert [holder["slot"] for holder in found["holders"]] == [0, 1]
    assert [holder["workflow"] for holder in found["holders"]] == ["holder-0", "holder-1"]
    assert all(holder["lease_left_seconds"] > 60 for holder in found["holders"])
    assert found["holders"][1]["held_seconds"] > found["holders"][0]["held_seconds"] > 5
    assert [each["workflow"] for each in found["line"]] == ["waiter-0", "waiter-1"]
    assert [each["expected_wait_seconds"] for each in found["line"]] == [5, 10]
    assert found["waiting"] == 3
    assert "1 more in line" in operator.runs("show", "jam[north]", "--waiters", "2").out


def test_show_says_that_an_estimate_rests_on_a_guess(operator: Operator, valkey: RedisServer) -> None:
    """Where nobody has noted the limit, it is not made up."""
    lock = LockId(operator.application, "jam")
    put(valkey, [Crowd(lock, held=2, hot=1, extra={"#m": -4e15 - 10_000})])
    assert "for a limit of 2" in operator.runs("show", "jam").out
    assert operator.runs("show", "jam", "--json").json["limit"] is None


def test_show_says_why_nothing_is_granted(operator: Operator, valkey: RedisServer) -> None:
    """In the grace after a failover a free slot beside a line is no riddle."""
    grace = int(time.time() * 1000) + 60_000
    put(valkey, [Crowd(LockId(operator.application, "jam"), held=0, hot=1, extra={"#g": -4e15 - grace})])
    assert "Nothing is granted for another" in operator.runs("show", "jam").out


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("stock[a]", None),
        ("stock", "a]b[c"),
        ("a[b]", "c"),
        ("with space", "*?"),
        ("\x1b[2Jred", "\r\n"),
        ("long" * 200, "k" * 300),
        ("ünï", "🔒"),
    ],
)
def test_show_finds_a_lock_by_what_list_shows(
    name: str, key: str | None, operator: Operator, valkey: RedisServer
) -> None:
    """However a lock is named, its label and its Redis key lead to it, and no terminal has to obey it."""
    lock = LockId(operator.application, name, key)
    put(valkey, [Crowd(lock, hot=1)])
    table = operator.runs("list")
    assert "\x1b" not in table.out
    assert "\r" not in table.out
    (listed,) = operator.runs("list", "--json").json["locks"]
    redis_key = lock_key("lock", lock)
    assert listed["redis_key"] == redis_key
    for way in (listed["lock"], redis_key):
        shown = operator.runs("show", way, "--json")
        assert shown.status == cli.OK, shown.err
        assert shown.json["redis_key"] == redis_key
        assert "\x1b" not in operator.runs("show", way).out
    if key is not None:
        assert operator.runs("show", name, "--key", key, "--json").json["redis_key"] == redis_key


def test_a_name_that_may_mean_two_locks_is_refused(operator: Operator, valkey: RedisServer) -> None:
    """A lock ``a[b]`` and the key ``b`` of ``a`` look alike: that is said, and how to tell them apart."""
    locks = [LockId(operator.application, "a[b]"), LockId(operator.application, "a", "b")]
    put(valkey, [Crowd(lock) for lock in locks])
    refused = operator.runs("show", "a[b]")
    assert refused.status == cli.USAGE
    for lock in locks:
        redis_key = lock_key("lock", lock)
        assert redis_key in refused.err
        assert operator.runs("show", redis_key, "--json").json["redis_key"] == redis_key


def test_what_is_no_lock_does_not_disturb(operator: Operator) -> None:
    """Other keys under the same prefix, of any type and with any bytes in a value, are left out."""
    with RedisServer() as server, redis.Redis(host=HOST, port=server.port) as client:
        app = operator.application
        put(server, [Crowd(LockId(app, "jam"))])
        client.set(f"lock:1:{{{app}:text}}", b"\xff")
        client.zadd(f"lock:1:{{{app}:odd}}", {b"\xff\x00": 1, b"i|{": 4e15})
        client.zadd(f"lock:1:{{{app}:open", {"h1": 1e12})
        operator.exports(REDIS_URL=server.url)
        found = operator.runs("list", "--json", "--idle").json
        assert {each["name"] for each in found["locks"]} == {"jam", "odd"}
        assert operator.runs("show", f"lock:1:{{{app}:text}}").status != cli.OK


@pytest.mark.parametrize(
    "arguments", [["list"], ["show", "jam"], ["watch"], ["release", "jam", "--token", "1", "--yes"]]
)
def test_each_command_says_what_is_wrong_with_redis(arguments: list[str], operator: Operator) -> None:
    """No server, a wrong password and wrong settings end with a line on standard error and a status each."""
    operator.exports(REDIS_URL="redis://127.0.0.1:1/0")
    gone = operator.runs(*arguments)
    assert gone.status == cli.UNAVAILABLE
    assert "127.0.0.1:1" in gone.err

    with RedisServer("--requirepass", "right") as server:
        operator.exports(REDIS_URL=f"redis://:very-wrong@{HOST}:{server.port}/0")
        refused = operator.runs(*arguments)
    assert refused.status == cli.MISCONFIGURED
    assert "refuses the login" in refused.err
    assert "very-wrong" not in refused.err

    operator.exports(REDIS_URL="http://x", LOCK_LEASE_SECONDS="soon")
    wrong = operator.runs(*arguments)
    assert wrong.status == cli.MISCONFIGURED
    assert "REDIS_URL" in wrong.err
    assert "LOCK_LEASE_SECONDS" in wrong.err
    assert gone.out == refused.out == wrong.out == ""


def test_looking_changes_nothing(operator: Operator, valkey: RedisServer) -> None:
    """``list``, ``show`` and ``watch`` leave a lock as it is, and create none."""
    lock = LockId(operator.application, "jam")
    put(valkey, [Crowd(lock, hot=2, parked=1)])
    before = command(valkey, "ZRANGE", lock_key("lock", lock), 0, -1, "WITHSCORES")
    for arguments in (["list"], ["show", "jam"], ["show", "nothing"], ["watch", "--count", "1"]):
        operator.runs(*arguments)
    assert command(valkey, "ZRANGE", lock_key("lock", lock), 0, -1, "WITHSCORES") == before
    assert command(valkey, "KEYS", f"*{operator.application}*") == [lock_key("lock", lock)]
