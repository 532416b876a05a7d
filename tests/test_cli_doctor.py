"""``doctor`` on one server: each mistake is found, with its remedy and a status for scripts."""

import itertools
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from acl_users import USER, allow
from doctor_findings import checks, examined, only
from operator_cli import Operator
from redis_tools import settings_for
from rights import least_commands, least_rights
from servers import command

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.ops import cli
from lock_interceptor.redis_store.checkup.rights import needed_commands

pytest_plugins = ["operator_fixtures"]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A durable server of the test's own, to be set up badly."""
    with RedisServer("--appendonly", "yes") as server:
        yield server


def test_a_good_server_passes(operator: Operator, server: RedisServer) -> None:
    """Where all is well nothing is found, by people and by scripts."""
    operator.exports(REDIS_URL=server.url)
    found = examined(operator, cli.OK)
    assert found["warning"] == found["problem"] == found["unknown"] == []
    assert {*checks(found["ok"])} >= {"settings", "reach", "rights", "version", "eviction", "memory"}
    assert {*checks(found["ok"])} >= {"persistence", "replicas", "clock", "lock"}
    said = operator.runs("doctor")
    assert said.status == cli.OK
    assert said.out.endswith("all is well\n")


@pytest.mark.parametrize("profile", ["primary", "failover"])
def test_a_workers_rights_are_enough(operator: Operator, server: RedisServer, profile: str) -> None:
    """With the least rights all that matters is checked; what CONFIG would tell is done without."""
    rights = least_rights(profile=profile, database=False)
    operator.exports(REDIS_URL=allow(server, *rights), LOCK_DURABILITY=profile)
    found = examined(operator, cli.OK)
    assert found["problem"] == found["unknown"] == []
    assert "scan" in only(found["ok"], "rights")["message"]
    assert checks(found["warning"]) == ([] if profile == "primary" else ["replicas"])


def test_the_rights_that_it_tries_are_the_least_ones() -> None:
    """What the doctor looks for is what ``test_acl.py`` proves to be enough and needed."""
    for profile, cluster, database in itertools.product(
        ("primary", "failover", "strict"), (False, True), (False, True)
    ):
        settings = settings_for(None, durability=profile, redis_cluster=cluster)
        expected = least_commands(profile, cluster=cluster, database=database)
        assert sorted(needed_commands(settings, database=database)) == expected


def test_all_missing_rights_are_found_at_once(operator: Operator, server: RedisServer) -> None:
    """One finding names them all, and the rule that it gives is enough."""
    missing = ["zadd", "time", "wait", "subscribe"]
    rules = [*least_rights(), "resetkeys", *(f"-{each}" for each in missing)]
    operator.exports(REDIS_URL=allow(server, *rules), LOCK_DURABILITY="failover")
    finding = only(examined(operator, cli.BROKEN)["problem"], "rights")
    for each in (*missing, "keys"):
        assert each.lower() in finding["message"].lower()
    assert finding["remedy"] == "ACL SETUSER <user> +subscribe +time +wait +zadd ~lock:*"

    command(server, "ACL", "SETUSER", USER, *finding["remedy"].split()[3:])
    assert "rights" in checks(examined(operator, cli.OK)["ok"])


@pytest.mark.parametrize("missing", [*least_commands("failover"), "resetkeys", "resetchannels"])
def test_each_missing_right_is_found(operator: Operator, redis7: RedisServer, missing: str) -> None:
    """Whatever single right is missing, it is named; what locks can do without is a warning."""
    rule = missing if missing.startswith("reset") else f"-{missing}"
    operator.exports(REDIS_URL=allow(redis7, *least_rights(), rule), LOCK_DURABILITY="failover")
    bearable = missing in ("info", "ping", "unsubscribe")
    found = examined(operator, cli.OK if bearable else cli.BROKEN)
    finding = only(found["warning" if bearable else "problem"], "rights")
    rules = {"resetkeys": "~lock:*", "resetchannels": "&lock:*"}
    assert finding["remedy"] == f"ACL SETUSER <user> {rules.get(missing, f'+{missing}')}"


def test_what_the_user_may_not_ask_is_no_failure(operator: Operator, server: RedisServer) -> None:
    """Without INFO much cannot be checked: that is said, and is no problem."""
    operator.exports(REDIS_URL=allow(server, *least_rights(), "-info"))
    found = examined(operator, cli.OK)
    assert "eviction" in only(found["unknown"], "info")["message"]
    assert "lock" in checks(found["ok"])


def test_a_hosted_server_without_config_is_examined(operator: Operator) -> None:
    """Where CONFIG does not exist the rest is checked all the same."""
    with RedisServer("--appendonly", "yes", config='rename-command CONFIG ""\n') as server:
        operator.exports(REDIS_URL=server.url)
        found = examined(operator, cli.OK)
    assert found["warning"] == found["problem"] == found["unknown"] == []


def test_a_wrong_password_is_found(operator: Operator) -> None:
    """A refused login is a problem, not an outage, and neither password nor user is shown."""
    with RedisServer("--requirepass", "right") as server:
        for login in ("", ":very-wrong@", "somebody:very-wrong@"):
            operator.exports(REDIS_URL=f"redis://{login}{HOST}:{server.port}/0")
            finding = only(examined(operator, cli.BROKEN)["problem"], "login")
            assert "REDIS_PASSWORD" in finding["message"]
            ended = operator.runs("doctor")
            assert ended.status == cli.BROKEN
            assert "very-wrong" not in ended.out + ended.err
            assert "somebody" not in ended.out + ended.err


def test_all_wrong_settings_are_found_at_once(operator: Operator) -> None:
    """Each invalid variable is a finding, before anything is connected."""
    operator.exports(REDIS_URL=None, REDIS_PORT="many", LOCK_LEASE_SECONDS="soon", REDIS_PASSWORD="x")  # noqa: S106
    found = examined(operator, cli.BROKEN)
    assert checks(found["problem"]) == ["settings", "settings"]
    assert {finding["message"].split(":")[0] for finding in found["problem"]} == {
        "REDIS_PORT",
        "LOCK_LEASE_SECONDS",
    }
    operator.exports(REDIS_PORT=None, LOCK_LEASE_SECONDS=None, REDIS_URL="redis://localhost/0?no_such=1")
    assert "REDIS_URL" in only(examined(operator, cli.BROKEN)["problem"], "settings")["message"]


def test_disabled_locking_is_told(operator: Operator, server: RedisServer) -> None:
    """Settings under which nothing is locked are a warning."""
    operator.exports(REDIS_URL=server.url, IS_LOCKING_DISABLED="true")
    assert "IS_LOCKING_DISABLED" in only(examined(operator, cli.OK)["warning"], "settings")["message"]


def test_what_cannot_be_reached_is_told_apart(operator: Operator, tmp_path: Path) -> None:
    """An unknown name, a closed port, a missing socket and a server that hangs end with three."""
    operator.exports(REDIS_URL=None, REDIS_HOST="no-such-host.invalid")
    assert "does not resolve" in only(examined(operator, cli.UNAVAILABLE)["problem"], "reach")["message"]

    operator.exports(REDIS_HOST="127.0.0.1", REDIS_PORT="1")
    assert "refused" in only(examined(operator, cli.UNAVAILABLE)["problem"], "reach")["message"]

    operator.exports(REDIS_URL=f"unix://{tmp_path}/no.sock")
    assert "socket" in only(examined(operator, cli.UNAVAILABLE)["problem"], "reach")["message"]

    with socket.create_server((HOST, 0)) as hung:
        operator.exports(REDIS_URL=f"redis://{HOST}:{hung.getsockname()[1]}/0")
        assert "no answer" in only(examined(operator, cli.UNAVAILABLE)["problem"], "reach")["message"]


def test_a_unix_socket_will_do(operator: Operator, tmp_path: Path) -> None:
    """All is checked over a socket, too."""
    path = tmp_path / "redis.sock"
    with RedisServer("--appendonly", "yes", "--unixsocket", str(path)):
        operator.exports(REDIS_URL=f"unix://{path}")
        found = examined(operator, cli.OK)
    assert found["warning"] == found["problem"] == found["unknown"] == []


def test_eviction_and_memory_are_looked_at(operator: Operator, server: RedisServer) -> None:
    """A policy that evicts is a problem once there is a limit, and little room is told before it is none."""
    operator.exports(REDIS_URL=server.url)
    command(server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    assert "allkeys-lru" in only(examined(operator, cli.OK)["warning"], "eviction")["message"]

    command(server, "CONFIG", "SET", "maxmemory", "1gb")
    finding = only(examined(operator, cli.BROKEN)["problem"], "eviction")
    assert "CONFIG SET maxmemory-policy noeviction" in finding["remedy"]

    command(server, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert "1,024 MB" in only(examined(operator, cli.OK)["ok"], "memory")["message"]
    command(server, "CONFIG", "SET", "maxmemory", "100kb")
    assert {"memory", "lock"} <= {*checks(examined(operator, cli.BROKEN)["problem"])}


def test_what_a_restart_forgets_is_told(operator: Operator, server: RedisServer) -> None:
    """The doctor knows AOF by its fsync, snapshots alone, and nothing at all."""
    operator.exports(REDIS_URL=server.url)
    assert "last second" in only(examined(operator, cli.OK)["ok"], "persistence")["message"]
    command(server, "CONFIG", "SET", "appendfsync", "always")
    assert "forgets nothing" in only(examined(operator, cli.OK)["ok"], "persistence")["message"]
    command(server, "CONFIG", "SET", "appendonly", "no")
    assert "nothing is kept" in only(examined(operator, cli.OK)["warning"], "persistence")["message"]
    command(server, "CONFIG", "SET", "save", "3600 1")
    assert "snapshot" in only(examined(operator, cli.OK)["warning"], "persistence")["message"]


def test_a_replica_in_place_of_its_primary_is_found(operator: Operator, server: RedisServer) -> None:
    """It takes no locks: the doctor names its primary and what the settings have to lead to."""
    with RedisServer("--replicaof", f"{HOST} {server.port}") as replica:
        operator.exports(REDIS_URL=replica.url)
        finding = only(examined(operator, cli.BROKEN)["problem"], "role")
    assert f"{HOST}:{server.port}" in finding["message"]


def test_a_profile_without_its_replicas_is_found(operator: Operator, server: RedisServer) -> None:
    """``strict`` without a replica never grants a lock, and ``failover`` confirms nothing."""
    operator.exports(REDIS_URL=server.url, LOCK_DURABILITY="strict")
    assert "no lock is ever granted" in only(examined(operator, cli.BROKEN)["problem"], "replicas")["message"]
    operator.exports(LOCK_DURABILITY="failover")
    assert "nothing confirms" in only(examined(operator, cli.OK)["warning"], "replicas")["message"]


def test_one_server_that_is_taken_for_a_cluster_is_found(operator: Operator, server: RedisServer) -> None:
    """The remedy is the variable that is wrong."""
    operator.exports(REDIS_URL=server.url, REDIS_CLUSTER="true")
    (finding,) = examined(operator, cli.BROKEN)["problem"]
    assert "REDIS_CLUSTER=false" in finding["message"]


def test_what_it_prints_is_harmless(operator: Operator, server: RedisServer) -> None:
    """Names from the environment cannot move the cursor, and colours are left to terminals."""
    operator.exports(REDIS_URL=server.url, APPLICATION_NAME="shop\x1b[2J\n")
    for arguments in (["doctor"], ["doctor", "--verbose"], ["list"]):
        said = operator.runs(*arguments)
        assert said.status == cli.OK
        assert "\x1b" not in said.out + said.err
