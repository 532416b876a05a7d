"""The container engine: whether there is one, and its commands."""

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALL = ("--profile", "*")
"""Compose's option for services of all profiles."""


class CommandError(AssertionError):
    """A command failed; the message is what it said."""


def docker(*words: str, variables: Mapping[str, str] | None = None, errors: bool = False) -> str:
    """Run a command to its end and return what it printed; with `errors` also what to standard error.

    Raises:
        CommandError: it failed.
    """
    command = ["docker", *words]
    done = subprocess.run(  # noqa: S603 - ours
        command,
        cwd=ROOT,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace")
        raise CommandError(f"{' '.join(command)}\n{said[-3000:]}")
    return (done.stdout + done.stderr * errors).decode(errors="surrogateescape")


async def docker_soon(*words: str, errors: bool = False) -> str:
    """Like `docker`, while other things go on."""
    return await asyncio.to_thread(docker, *words, errors=errors)


def image(service: str) -> str:
    """Which image docker-compose.yml has for a service."""
    name: str = json.loads(docker("compose", *ALL, "config", "--format", "json"))["services"][service][
        "image"
    ]
    return name


def require_engine() -> None:
    """Skip the tests where there is no engine, or Compose; in CI they fail."""
    for words, what in (
        (("info",), "a running Docker engine"),
        (("compose", "version"), "Docker Compose, version 2"),
    ):
        try:
            docker(*words)
        except (CommandError, FileNotFoundError) as error:
            text = f"the integration tests need {what}: {str(error).strip().splitlines()[-1]}"
            if os.environ.get("CI"):
                pytest.fail(text, pytrace=False)
            pytest.skip(text)


def use_dotenv() -> None:
    """Let this process have the variables of ``.env``, as Compose has."""
    dotenv = ROOT / ".env"
    for line in dotenv.read_text().splitlines() if dotenv.exists() else ():
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            os.environ.setdefault(name.strip(), value.strip())
