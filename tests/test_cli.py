"""The command line: help, versions, statuses, and servers that run until Ctrl-C."""

import asyncio
import importlib.metadata
import inspect
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest
import redis
from command_line import COMMAND, alive, running
from servers import wait_until
from temporalio.client import Client

from lock_interceptor import LockSettings, RedisLockStore
from lock_interceptor.dev import process
from lock_interceptor.ops import cli, commands


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a command line in this process: status, output and errors."""
    status = cli.main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_every_command_has_help_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of each command says what it does, explains all its options, and has examples that work."""
    status, overview, _ = run("--help", capsys=capsys)
    assert status == cli.OK
    for command in commands.app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        assert f"  {name} " in overview
        for option in ("--help", "-h"):
            status, text, _ = run(name, option, capsys=capsys)
            assert status == cli.OK
            assert inspect.cleandoc(command.callback.__doc__ or "").splitlines()[0] in " ".join(text.split())
            assert f"  lock-interceptor {name}" in text.partition("Examples:")[2]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("demo", ("--workflows", "--seed", "--svg", "--plain")),
        ("dev", ("--temporal-port", "--ui-port", "--redis-port")),
        ("list", ("NAME", "--app", "--all", "--limit", "--idle", "--json")),
        ("show", ("NAME", "--key", "--app", "--waiters", "--json")),
        ("watch", ("NAME", "--app", "--all", "--limit", "--interval", "--count", "--json")),
        ("release", ("NAME", "--token", "--key", "--app", "--yes", "--json")),
        ("doctor", ("--verbose", "--json")),
    ],
)
def test_help_names_each_option(
    command: str, options: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each option of a command stands in its help."""
    _, text, _ = run(command, "--help", capsys=capsys)
    assert all(option in text for option in options)


def test_version_is_that_of_the_package() -> None:
    """Both ways to call the command print the installed version and nothing else."""
    version = importlib.metadata.version("lock-interceptor")
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="lock-interceptor")
    assert script.load() is cli.entrypoint
    printed = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)  # noqa: S603 - our own command
    assert printed.stdout == f"{version}\n"
    assert printed.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["demo", "--no-such-option"],
        ["demo", "--workflows", "3"],
        ["demo", "--workflows", "many"],
        ["demo", "--svg", "no/such/directory/picture.svg"],
        ["demo", "--svg", "."],
        ["dev", "--redis-port", "70000"],
        ["list", "--limit", "0"],
        ["show"],
        ["show", "lock", "--waiters", "-1"],
        ["watch", "--interval", "0"],
        ["release", "lock"],
        ["release", "lock", "--token", "first"],
        ["doctor", "unexpected"],
    ],
)
def test_usage_errors_end_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A command line that makes no sense ends with status 2 and a reason, before anything starts."""
    status, output, errors = run(*arguments, capsys=capsys)
    assert status == cli.USAGE
    assert output == ""
    assert "Error" in errors


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_missing_extra_is_named_with_the_remedy(missing: str) -> None:
    """Without typer or rich the command says what to install, in one line."""
    hidden = f"import sys; sys.modules[{missing!r}] = None; "
    code = f"{hidden}from lock_interceptor.ops.cli import main; sys.exit(main(['--version']))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603 - our own code
    assert ended.returncode == cli.UNAVAILABLE
    assert ended.stderr == f"{missing} is not installed: pip install 'lock-interceptor[cli]'\n"


def test_a_module_missing_elsewhere_is_not_blamed_on_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing for another reason comes out as it is."""
    for module in ("commands", "trying"):
        monkeypatch.delitem(sys.modules, f"lock_interceptor.ops.{module}")
    monkeypatch.setitem(sys.modules, "structlog", None)
    monkeypatch.setitem(sys.modules, "lock_interceptor.dev.demo.run", None)
    with pytest.raises(ModuleNotFoundError, match=r"lock_interceptor\.dev\.demo\.run"):
        cli.main(["--version"])


@pytest.mark.parametrize("command", ["dev", "demo"])
def test_missing_servers_are_named_with_the_remedy(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without the packages that carry the servers the command says what to install, and leaves no files."""

    def not_installed(package: str) -> None:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(process.metadata, "files", not_installed)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    status, _, errors = run(command, capsys=capsys)
    assert status == cli.UNAVAILABLE
    assert "pip install 'lock-interceptor[dev]'" in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--temporal-port", "--ui-port", "--redis-port"])
def test_a_taken_port_is_named(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """When somebody listens on a port that was asked for, the command says which, and starts nothing."""
    with socket.create_server((process.HOST, 0)) as other:
        port = other.getsockname()[1]
        status, output, errors = run("dev", option, str(port), capsys=capsys)
    assert status == cli.UNAVAILABLE
    assert f"port {port} is taken" in errors
    assert output == ""


async def use(exports: dict[str, str]) -> None:
    """Ask something of each server, as an application would that has these variables."""
    client = await Client.connect(exports["TEMPORAL_ADDRESS"])
    assert [found async for found in client.list_workflows()] == []
    store = RedisLockStore(LockSettings(redis_url=exports["REDIS_URL"]))
    await store.check()
    await store.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_dev_runs_both_servers_until_interrupted(how: signal.Signals, tmp_path: Path) -> None:
    """Both answer where the command says, on the ports asked for, and end with it, which is no failure."""
    temporal, ui, valkey = process.free_ports(3)
    ports = ["--temporal-port", str(temporal), "--ui-port", str(ui), "--redis-port", str(valkey)]
    with running("dev", *ports, temporary=tmp_path) as dev:
        dev.read_until("Ctrl-C")
        exports = dict(
            line.removeprefix("export ").split("=", 1) for line in dev.lines if line.startswith("export ")
        )
        assert exports == {
            "TEMPORAL_ADDRESS": f"127.0.0.1:{temporal}",
            "REDIS_URL": f"redis://127.0.0.1:{valkey}/0",
        }
        asyncio.run(use(exports))
        page = next(line.split()[-1] for line in dev.lines if line.startswith("Web UI"))
        assert page == f"http://127.0.0.1:{ui}"
        with urllib.request.urlopen(page, timeout=5) as answer:  # noqa: S310 - the address above
            assert answer.status == 200

        family = dev.family()
        assert len(family) >= 2
        dev.send(how)
        assert dev.process.wait(10) == cli.OK
        assert dev.errors() == ""
    wait_until(lambda: not alive(family), "the end of both servers", 5)
    assert list(tmp_path.iterdir()) == []


def test_dev_says_when_a_server_ends_by_itself(tmp_path: Path) -> None:
    """When a server dies, the command ends as well and says which one it was."""
    with running("dev", temporary=tmp_path) as dev:
        url = dev.read_until("export REDIS_URL=").partition("=")[2]
        dev.read_until("Ctrl-C")
        with redis.Redis.from_url(url) as server:
            server.shutdown(nosave=True)
        assert dev.process.wait(10) == cli.UNAVAILABLE
        assert "Valkey ended by itself" in dev.errors()
