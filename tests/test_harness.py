"""What the other tests stand on: Sentinel sets, Clusters, and the proxy that breaks connections."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from proxy import TcpProxy
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel
from servers import ClusterSet, SentinelSet, command, info, redis_binaries, require_redis, wait_until

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST


@pytest.fixture(params=["valkey", "redis"])
def binary(request: pytest.FixtureRequest) -> Path:
    return require_redis() if request.param == "redis" else redis_binaries()["valkey"]


@pytest.fixture
def proxy(valkey: RedisServer) -> Iterator[TcpProxy]:
    """A proxy before an empty server."""
    command(valkey, "FLUSHALL")
    with TcpProxy(valkey.port) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: TcpProxy) -> Iterator[redis.Redis]:
    """A client with a connection through the proxy, which gives up after 0.2 s and never repeats."""
    with redis.Redis.from_url(proxy.url(), socket_timeout=0.2, retry=Retry(NoBackoff(), 0)) as client:
        client.ping()
        yield client


@pytest.mark.parametrize(("end", "password"), [(RedisServer.kill, None), (RedisServer.pause, "secret")])
def test_sentinel_set_fails_over(binary: Path, end: object, password: str | None) -> None:
    """When the primary dies or hangs the sentinels agree on another one, which takes writes."""
    sentinel_password = password and f"more-{password}"
    with SentinelSet(binary, password=password, sentinel_password=sentinel_password) as servers:
        old = servers.primary
        end(old)
        new = servers.wait_for_failover(old.port)
        assert new is servers.primary is not old
        assert old in servers.replicas
        assert command(new, "SET", "key", "value", password=password) == "OK"


def test_sentinel_set_is_what_clients_expect(binary: Path) -> None:
    """A client given sentinel_hosts finds the primary and both replicas."""
    with SentinelSet(binary) as servers:
        hosts = [
            (host, int(port)) for host, port in (at.split(":") for at in servers.sentinel_hosts.split(","))
        ]
        with contextlib.ExitStack() as stack:
            sentinel = Sentinel(hosts, socket_timeout=1)
            for each in sentinel.sentinels:
                stack.callback(each.close)
            assert sentinel.discover_master(servers.service) == (HOST, servers.primary.port)
            replicas = sentinel.discover_slaves(servers.service)
            assert sorted(replicas) == sorted((HOST, replica.port) for replica in servers.replicas)


@pytest.mark.parametrize("replicas", [0, 1])
def test_cluster_set_takes_writes_in_every_slot_range(binary: Path, replicas: int) -> None:
    """A Cluster is complete when entered: one primary takes a key, and the others point to it."""

    def outcome(node: RedisServer, key: str) -> str:
        try:
            return command(node, "SET", key, "value")
        except redis.exceptions.MovedError:
            return "MOVED"

    with ClusterSet(replicas, binary) as servers:
        assert len(servers.nodes) == 3 * (1 + replicas)
        for i in range(20):
            assert sorted(outcome(node, f"key-{i}") for node in servers.nodes[:3]) == ["MOVED", "MOVED", "OK"]
        assert all(command(node, "DBSIZE") > 0 for node in servers.nodes[:3])
        assert {info(node, "replication")["role"] for node in servers.nodes[3:]} <= {"slave"}


def test_proxy_passes_everything_on(through: redis.Redis, proxy: TcpProxy) -> None:
    """Without a fault nothing is changed, however large, and connections are counted."""
    assert through.set("key", b"x" * 1_000_000)
    assert through.get("key") == b"x" * 1_000_000
    assert proxy.connections == 1
    through.close()
    wait_until(lambda: proxy.connections == 0, "the end of the connection")


def test_proxy_refuses_new_connections_only(through: redis.Redis, proxy: TcpProxy) -> None:
    """While it refuses, connections that exist go on; when it listens again, new ones are served."""
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, proxy.port))
    assert through.ping()
    proxy.listen()
    through.connection_pool.disconnect()
    assert through.ping()


def test_proxy_drops_replies_of_what_was_executed(
    through: redis.Redis, proxy: TcpProxy, valkey: RedisServer
) -> None:
    """A command whose reply is dropped has been executed."""
    proxy.drop_replies()
    with pytest.raises(redis.TimeoutError):
        through.incr("count")
    assert command(valkey, "GET", "count") == "1"
    proxy.heal()
    assert through.incr("count") == 2


def test_proxy_drops_requests_before_they_are_executed(
    through: redis.Redis, proxy: TcpProxy, valkey: RedisServer
) -> None:
    """A command that is dropped has not been executed."""
    proxy.drop_requests()
    with pytest.raises(redis.TimeoutError):
        through.incr("count")
    assert command(valkey, "GET", "count") is None
    proxy.heal()
    assert through.incr("count") == 1


def test_proxy_delays(through: redis.Redis, proxy: TcpProxy) -> None:
    """A delay holds for the request and for the reply."""
    proxy.delay(0.05)
    start = time.monotonic()
    assert through.ping()
    assert time.monotonic() - start >= 0.1
    proxy.delay(0.3)
    with pytest.raises(redis.TimeoutError):
        through.ping()


def test_proxy_black_hole_hides_even_the_death_of_the_server(valkey: RedisServer) -> None:
    """In a black hole connections stay open and silent when the server dies; healed, the end shows."""
    with RedisServer() as server, TcpProxy(server.port) as proxy:
        with socket.create_connection((HOST, proxy.port)) as client:
            client.sendall(b"PING\r\n")
            assert client.recv(100) == b"+PONG\r\n"
            proxy.black_hole()
            server.kill()
            client.sendall(b"PING\r\n")
            client.settimeout(0.1)
            with pytest.raises(TimeoutError):
                client.recv(100)
            proxy.heal()
            client.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(100) == b""
        wait_until(lambda: proxy.connections == 0, "the end of the connection")


def test_proxy_cuts_connections(proxy: TcpProxy) -> None:
    """A cut resets every connection, and new ones are served."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection((HOST, proxy.port), 5)) for _ in range(3)]
        wait_until(lambda: proxy.connections == 3, "three connections")
        proxy.cut()
        for client in clients:
            with pytest.raises(ConnectionResetError):
                client.recv(100)
        assert proxy.connections == 0
        again = stack.enter_context(socket.create_connection((HOST, proxy.port), 5))
        again.sendall(b"PING\r\n")
        assert again.recv(100) == b"+PONG\r\n"


def test_proxy_kills_on_the_next_reply_once(through: redis.Redis, proxy: TcpProxy) -> None:
    """The next reply is replaced by a reset after the command was executed; the one after it passes."""
    proxy.kill_on_next_reply()
    with pytest.raises(redis.ConnectionError):
        through.incr("count")
    assert through.incr("count") == 2


def test_proxy_resets_clients_of_a_dead_server() -> None:
    """A client is accepted and then reset when there is no server behind the proxy."""
    with RedisServer() as server:
        pass

    def connect_and_read(port: int) -> None:
        with socket.create_connection((HOST, port), 5) as client:
            client.recv(100)

    with TcpProxy(server.port) as proxy, pytest.raises(ConnectionResetError):
        connect_and_read(proxy.port)


def test_missing_redis_server_skips_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where redis-server is missing a test is skipped, and fails in CI."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", "false")
    with pytest.raises(pytest.skip.Exception):
        require_redis()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        require_redis()


def test_redis7_fixture_is_a_server_of_its_own(redis7: RedisServer, valkey: RedisServer) -> None:
    """The shared Redis and the shared Valkey are two different servers."""
    assert info(redis7, "server")["redis_mode"] == "standalone"
    assert info(valkey, "server")["server_name"] == "valkey"
