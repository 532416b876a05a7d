"""``doctor`` on Sentinel, on a Cluster, with TLS, and on what no server here can be made to say."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import pytest
from acl_users import PASSWORD, USER, allow
from certificates import TlsFiles, tls_files
from doctor_findings import checks, examined, only
from operator_cli import Operator
from redis.asyncio import Redis
from rights import least_rights, sentinel_rights
from servers import ClusterSet, SentinelSet, command, require_redis, wait_until

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.ops import cli
from lock_interceptor.redis_store.checkup.findings import Finding, Server
from lock_interceptor.redis_store.checkup.replicas import check_clocks, check_replicas
from lock_interceptor.redis_store.checkup.server import check_persistence, check_version

pytest_plugins = ["operator_fixtures"]
LEASE = timedelta(seconds=30)


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelSet]:
    with SentinelSet() as servers:
        for server in (servers.primary, *servers.replicas):
            command(server, "CONFIG", "SET", "appendonly", "yes")
        yield servers


@pytest.fixture
def set_up(operator: Operator, sentinels: SentinelSet) -> Iterator[SentinelSet]:
    """The settings lead to the Sentinels; what a test sets there is taken back."""
    operator.exports(REDIS_URL=None, REDIS_SENTINEL_HOSTS=sentinels.sentinel_hosts)
    yield sentinels
    for sentinel in sentinels.sentinels:
        sentinels.ask(sentinel, "SET", sentinels.service, "quorum", 2, "down-after-milliseconds", 200)
    for server in (sentinels.primary, *sentinels.replicas):
        command(server, "CONFIG", "SET", "min-replicas-to-write", 0)


def test_sentinels_that_agree_pass(operator: Operator, set_up: SentinelSet) -> None:
    """Sentinels, primary and replicas are looked at; what is left is that an isolated primary would go on."""
    found = examined(operator, cli.OK)
    assert found["problem"] == found["unknown"] == []
    assert checks(found["warning"]) == ["isolation"]
    assert "min-replicas-to-write" in found["warning"][0]["remedy"]
    assert "3 Sentinels, a quorum of 2" in only(found["ok"], "sentinel")["message"]
    rights = [finding["where"] for finding in found["ok"] if finding["check"] == "rights"]
    assert len(rights) == 3
    assert "the clocks of 3 servers agree" in [finding["message"] for finding in found["ok"]]
    said = operator.runs("doctor")
    assert said.out.count("rights: ") == 1
    assert operator.runs("doctor", "--verbose").out.count("rights: ") == 3


def test_an_isolated_primary_has_to_stop_before_another_begins(
    operator: Operator, set_up: SentinelSet
) -> None:
    """min-replicas-max-lag is compared with the time after which Sentinel promotes."""
    for server in (set_up.primary, *set_up.replicas):
        command(server, "CONFIG", "SET", "min-replicas-to-write", 1, "min-replicas-max-lag", 10)
    assert "max-lag is 10 s" in only(examined(operator, cli.OK)["warning"], "isolation")["message"]
    for sentinel in set_up.sentinels:
        set_up.ask(sentinel, "SET", set_up.service, "down-after-milliseconds", 12_000)
    found = examined(operator, cli.OK)
    assert "isolation" in checks(found["ok"])
    # and that is now late for a lease of 30 seconds
    assert "may lose their locks" in only(found["warning"], "sentinel")["message"]
    operator.exports(LOCK_LEASE_SECONDS="60")
    assert examined(operator, cli.OK)["warning"] == []


def test_what_is_wrong_with_sentinels_is_found(operator: Operator, set_up: SentinelSet) -> None:
    """A service that they do not watch, a quorum that is never reached, one that is named alone."""
    operator.exports(REDIS_SENTINEL_SERVICE="other")
    finding = examined(operator, cli.BROKEN)["problem"][0]
    assert "it watches mymaster" in finding["message"]
    assert "REDIS_SENTINEL_SERVICE" in finding["remedy"]

    operator.exports(REDIS_SENTINEL_SERVICE=None)
    for sentinel in set_up.sentinels:
        set_up.ask(sentinel, "SET", set_up.service, "quorum", 4)
    assert "never fail over" in only(examined(operator, cli.BROKEN)["problem"], "sentinel")["message"]

    for sentinel in set_up.sentinels:
        set_up.ask(sentinel, "SET", set_up.service, "quorum", 2)
    first = f"{HOST}:{set_up.sentinels[0].port}"
    operator.exports(REDIS_SENTINEL_HOSTS=f"{first},127.0.0.1:1")
    found = examined(operator, cli.OK)
    assert {*checks(found["warning"])} == {"reach", "sentinel", "isolation"}
    operator.exports(REDIS_SENTINEL_HOSTS=first)
    assert "names one of 3" in str(examined(operator, cli.OK)["warning"])
    operator.exports(REDIS_SENTINEL_HOSTS="127.0.0.1:1")
    assert checks(examined(operator, cli.UNAVAILABLE)["problem"]) == ["reach"]


def test_rights_are_looked_for_at_every_server(operator: Operator, set_up: SentinelSet) -> None:
    """A user that the Sentinels or a replica do not have is found before a failover finds it."""
    for server in (set_up.primary, *set_up.replicas):
        allow(server, *least_rights(profile="failover", database=False))
    for sentinel in set_up.sentinels:
        allow(sentinel, *sentinel_rights())
    login = {"REDIS_USERNAME": USER, "REDIS_PASSWORD": PASSWORD}
    operator.exports(**login, REDIS_SENTINEL_USERNAME=USER, REDIS_SENTINEL_PASSWORD=PASSWORD)
    assert examined(operator, cli.OK)["problem"] == []

    left, right = set_up.replicas
    command(left, "ACL", "DELUSER", USER)
    command(right, "ACL", "SETUSER", USER, "-zadd", "-publish")
    command(set_up.sentinels[2], "ACL", "SETUSER", USER, "-sentinel|masters")
    problems = examined(operator, cli.BROKEN)["problem"]
    assert checks(problems) == ["sentinel", "login", "rights"] or checks(problems) == [
        "sentinel",
        "rights",
        "login",
    ]
    assert only(problems, "login")["where"] == f"{HOST}:{left.port}"
    assert only(problems, "rights")["where"] == f"{HOST}:{right.port}"
    assert only(problems, "rights")["remedy"] == "ACL SETUSER <user> +publish +zadd"
    assert "+sentinel|masters" in only(problems, "sentinel")["remedy"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSet]:
    with ClusterSet() as servers:
        yield servers


def test_a_cluster_is_looked_at_node_by_node(operator: Operator, cluster: ClusterSet) -> None:
    """Coverage, replicas and rights of each node; what the user may not ask is unknown."""
    operator.exports(REDIS_URL=cluster.url, REDIS_CLUSTER="true")
    found = examined(operator, cli.OK)
    assert "all slots are covered, by 3 primaries" in only(found["ok"], "cluster")["message"]
    assert "no replica of" in only(found["warning"], "cluster")["message"]
    assert len([each for each in found["ok"] if each["check"] == "rights"]) == 3

    for node in cluster.nodes:
        url = allow(node, *least_rights(profile="failover", cluster=True, database=False))
    command(cluster.nodes[1], "ACL", "SETUSER", USER, "-evalsha")
    operator.exports(REDIS_URL=url)
    found = examined(operator, cli.BROKEN)
    assert checks(found["unknown"]) == ["cluster"]
    finding = only(found["problem"], "rights")
    assert finding["remedy"] == "ACL SETUSER <user> +evalsha"
    assert finding["where"] == f"{HOST}:{cluster.nodes[1].port}"


def test_a_node_of_a_cluster_that_is_taken_for_a_server_is_found(
    operator: Operator, cluster: ClusterSet
) -> None:
    """It has some of the locks only: the remedy is the variable."""
    operator.exports(REDIS_URL=cluster.url)
    assert only(examined(operator, cli.BROKEN)["problem"], "role")["remedy"] == "set REDIS_CLUSTER=true"


def test_a_cluster_with_a_hole_is_found(operator: Operator) -> None:
    """Slots without a node are counted, and the Cluster's state is told."""
    with ClusterSet() as cluster:
        for node in cluster.nodes:
            command(node, "CLUSTER", "DELSLOTSRANGE", 0, 9)
        wait_until(lambda: "cluster_state:fail" in command(cluster.nodes[0], "CLUSTER", "INFO"), "a hole")
        operator.exports(REDIS_URL=cluster.url, REDIS_CLUSTER="true")
        problems = examined(operator, cli.BROKEN)["problem"]
    assert any("10 of 16,384 slots have no node" in finding["message"] for finding in problems)
    assert any("state is fail" in finding["message"] for finding in problems)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("doctor-tls"))


def test_tls_that_does_not_agree_is_found(operator: Operator, files: TlsFiles, valkey: RedisServer) -> None:
    """Either side may speak TLS alone, or not trust the other: each names its variable."""
    operator.exports(REDIS_URL=f"rediss://{HOST}:{valkey.port}/0")
    assert "REDIS_TLS=false" in only(examined(operator, cli.BROKEN)["problem"], "tls")["message"]
    options = files.server_options(client_certificates=False)
    with RedisServer(*options, tls=True, binary=require_redis()) as server:
        operator.exports(REDIS_URL=f"redis://{HOST}:{server.port}/0")
        assert "REDIS_TLS=true" in only(examined(operator, cli.BROKEN)["problem"], "tls")["message"]
        operator.exports(REDIS_URL=server.url)
        assert "REDIS_TLS_CA_FILE" in only(examined(operator, cli.BROKEN)["problem"], "tls")["message"]
        operator.exports(REDIS_TLS_CA_FILE=files.ca)
        assert examined(operator, cli.OK)["problem"] == []


def told(where: str) -> Server:
    """A server whose answers are given to the checks by hand."""
    client = Redis()
    return Server(where, client, 1)


def level(findings: Iterator[Finding]) -> str:
    (finding,) = findings
    return finding.level


def test_clocks_matter_between_servers() -> None:
    """This machine's clock is of little interest, those of servers that take over from each other of much."""
    one, other = told("one:1"), told("other:2")
    assert [each.level for each in check_clocks([(one, 0.1), (other, -0.1)], LEASE)] == ["ok", "ok"]
    assert [each.level for each in check_clocks([(one, 60.0)], LEASE)] == ["warning"]
    assert [each.level for each in check_clocks([(one, 0.0), (other, 2.0)], LEASE)] == ["ok", "warning"]
    apart = list(check_clocks([(one, 0.0), (other, -20.0)], LEASE))
    assert [each.level for each in apart] == ["ok", "problem"]
    assert apart[1].where == "one:1"
    assert list(check_clocks([], LEASE)) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"redis_version": "6.2.14"}, "problem"),
        ({"redis_version": "7.0.0"}, "ok"),
        ({"redis_version": "10.1.0"}, "ok"),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.0"}, "ok"),
    ],
)
def test_versions_that_cannot_run_the_scripts_are_found(fields: dict[str, str], expected: str) -> None:
    """Redis 7 is the first that can."""
    assert level(check_version(told("here"), fields)) == expected


def test_a_disk_that_fails_is_found() -> None:
    """Redis refuses writes when it cannot save: that is told before it is met."""
    for field in ("rdb_last_bgsave_status", "aof_last_write_status"):
        assert level(check_persistence(told("here"), {field: "err", "aof_enabled": "1"}, {})) == "problem"


def test_replicas_are_judged_by_the_profile() -> None:
    """One that copies yet is told, and so is a profile that does not use those that are there."""

    def judged(profile: str, replicated: bool, *states: str) -> str:
        fields = {f"slave{n}": f"ip=h,port=1,state={state}" for n, state in enumerate(states)}
        fields["connected_slaves"] = str(len(states))
        return level(check_replicas(told("here"), fields, cast("Any", profile), replicated=replicated))

    assert judged("failover", True, "online") == "ok"
    assert judged("failover", True, "online", "send_bulk") == "warning"
    assert judged("failover", True) == "warning"
    assert judged("primary", True, "online") == "warning"
    assert judged("primary", False) == "ok"
    assert judged("strict", True) == "problem"
