"""TLS on one Redis, behind Sentinel and in a Cluster: the same settings work, and each mistake is named."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from certificates import TlsFiles, tls_files
from redis_tools import new_claim, open_store, settings_for, take
from servers import free_ports, require_redis, wait_until

from lock_interceptor import LockConfigurationError
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST

Flags = list[str]
SLOTS = 16384


@dataclass
class Place:
    """Servers of one kind that speak TLS, or some other servers in their place."""

    way: dict[str, Any]
    """The settings that lead to them."""
    seen: int
    """The port that a client meets first."""


def _admin(server: RedisServer, files: TlsFiles) -> redis.Redis:
    certificate = {"ssl_certfile": str(files.client_cert), "ssl_keyfile": str(files.client_key)}
    return redis.Redis(host=HOST, port=server.port, ssl=True, ssl_cert_reqs="none", **certificate)


@contextlib.contextmanager
def _single(files: TlsFiles, flags: Flags, *, tls: bool = True) -> Iterator[Place]:
    del files
    with RedisServer(*flags, binary=require_redis(), tls=tls) as server:
        yield Place({"redis_host": HOST, "redis_port": server.port}, server.port)


@contextlib.contextmanager
def _sentinel(files: TlsFiles, flags: Flags, *, tls: bool = True) -> Iterator[Place]:
    del files
    among_themselves = ["--tls-replication", "yes"] if tls else []
    with RedisServer(*flags, *among_themselves, binary=require_redis(), tls=tls) as primary:
        monitor = f"sentinel monitor mymaster {HOST} {primary.port} 1\n"
        sentinel = RedisServer(
            "--sentinel", *flags, *among_themselves, binary=require_redis(), tls=tls, config=monitor
        )
        with sentinel:
            yield Place({"redis_sentinel_hosts": f"{HOST}:{sentinel.port}"}, sentinel.port)


@contextlib.contextmanager
def _cluster(files: TlsFiles, flags: Flags, *, tls: bool = True) -> Iterator[Place]:
    """Two nodes, so that a client has to go from one to the other."""
    bus = free_ports(2)
    options = [*flags, "--cluster-enabled", "yes", *(["--tls-cluster", "yes"] if tls else [])]
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(
                RedisServer(*options, "--cluster-port", str(port), binary=require_redis(), tls=tls)
            )
            for port in bus
        ]
        if tls:
            one, other = (stack.enter_context(_admin(node, files)) for node in nodes)
            one.execute_command("CLUSTER ADDSLOTSRANGE", 0, SLOTS // 2 - 1)
            other.execute_command("CLUSTER ADDSLOTSRANGE", SLOTS // 2, SLOTS - 1)
            other.execute_command("CLUSTER SET-CONFIG-EPOCH", 2)
            one.execute_command("CLUSTER MEET", HOST, nodes[1].port, bus[1])
            for node in (one, other):
                wait_until(lambda node=node: _is_complete(node), "a complete Cluster")
        yield Place({"redis_host": HOST, "redis_port": nodes[0].port, "redis_cluster": True}, nodes[0].port)


def _is_complete(node: redis.Redis) -> bool:
    return node.execute_command("CLUSTER INFO")["cluster_state"] == "ok"


KINDS: dict[str, Callable[..., contextlib.AbstractContextManager[Place]]] = {
    "single": _single,
    "sentinel": _sentinel,
    "cluster": _cluster,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def good(kind: str, files: TlsFiles) -> Iterator[Place]:
    """Servers with a good certificate that want one of their clients."""
    with KINDS[kind](files, files.server_options()) as place:
        yield place


def _ours(files: TlsFiles, **changes: Any) -> dict[str, Any]:
    """Settings with everything as it should be, but for the changes."""
    return {
        "redis_tls": True,
        "redis_tls_ca_file": files.ca,
        "redis_tls_cert_file": files.client_cert,
        "redis_tls_key_file": files.client_key,
        **changes,
    }


async def _use(place: Place, **settings: Any) -> None:
    async with open_store(settings_for(None, **place.way, **settings)) as store:
        await store.check()
        for _ in range(8):  # of so many locks some are at either node of a Cluster
            await take(store, new_claim())


async def _refused(place: Place, **settings: Any) -> str:
    with pytest.raises(LockConfigurationError) as refused:
        await _use(place, **settings)
    return str(refused.value)


async def test_both_sides_show_their_certificates(good: Place, files: TlsFiles) -> None:
    """With the authority, a certificate and its key, locks work over TLS."""
    await _use(good, **_ours(files))


async def test_a_wrong_authority_is_named(good: Place, files: TlsFiles) -> None:
    """Servers that the given authority, or no public one, has vouched for are not talked to."""
    for authority in (files.other_ca, None):
        text = await _refused(good, **_ours(files, redis_tls_ca_file=authority))
        assert "certificate verify failed" in text
        assert "REDIS_TLS_CA_FILE" in text


async def test_a_client_certificate_that_does_not_do_is_named(good: Place, files: TlsFiles) -> None:
    """No certificate, and one of an authority that the servers do not know, lead to the two variables."""
    none = {"redis_tls_cert_file": None, "redis_tls_key_file": None}
    strange = {"redis_tls_cert_file": files.other_client_cert, "redis_tls_key_file": files.other_client_key}
    for certificate in (none, strange):
        text = await _refused(good, **_ours(files, **certificate))
        assert "REDIS_TLS_CERT_FILE" in text
        assert "REDIS_TLS_KEY_FILE" in text


async def test_files_that_do_not_belong_together_are_named(good: Place, files: TlsFiles) -> None:
    """A key of another certificate, or a file that is none, is told with the TLS variables."""
    for wrong in ({"redis_tls_key_file": files.server_key}, {"redis_tls_ca_file": files.server_key}):
        assert "REDIS_TLS_CERT_FILE" in await _refused(good, **_ours(files, **wrong))


async def test_no_tls_towards_tls_is_named(good: Place) -> None:
    """A client without TLS is told that it needs it."""
    assert f"{HOST}:{good.seen} speaks TLS: set REDIS_TLS=true" in await _refused(good)


@pytest.mark.parametrize(
    ("certificate", "said"),
    [("expired", "certificate has expired"), ("elsewhere", f"not valid for '{HOST}'")],
)
async def test_a_bad_server_certificate_is_told(
    kind: str, files: TlsFiles, certificate: str, said: str
) -> None:
    """A certificate that has expired, or is for another host, is refused with the reason."""
    shown: Path = getattr(files, f"{certificate}_cert")
    # nobody gets as far as to see the nodes behind the first, so one that stands alone will do
    kind_of_first = "single" if kind == "cluster" else kind
    with KINDS[kind_of_first](files, files.server_options(certificate=shown)) as place:
        place.way["redis_cluster"] = kind == "cluster"
        text = await _refused(place, **_ours(files))
    assert said in text.replace("IP address mismatch, certificate is", "")
    assert "REDIS_TLS_CA_FILE" in text


async def test_tls_towards_plain_servers_is_named(kind: str, files: TlsFiles) -> None:
    """A client with TLS is told that the servers have none."""
    with KINDS[kind](files, [], tls=False) as place:
        text = await _refused(place, **_ours(files), lease=5)
    assert f"{HOST}:{place.seen} speaks no TLS: set REDIS_TLS=false" in text


async def test_a_primary_with_a_strange_certificate_is_told(files: TlsFiles) -> None:
    """Behind Sentinels whose certificates are good, the primary's has to be good as well."""
    flags = [*files.server_options(certificate=files.elsewhere_cert), "--tls-replication", "yes"]
    with RedisServer(*flags, binary=require_redis(), tls=True) as primary:
        monitor = f"sentinel monitor mymaster {HOST} {primary.port} 1\n"
        flags = ["--sentinel", *files.server_options(), "--tls-replication", "yes"]
        with RedisServer(*flags, binary=require_redis(), tls=True, config=monitor) as sentinel:
            place = Place({"redis_sentinel_hosts": f"{HOST}:{sentinel.port}"}, sentinel.port)
            text = await _refused(place, **_ours(files))
    assert "certificate verify failed" in text
    assert "REDIS_TLS_CA_FILE" in text
