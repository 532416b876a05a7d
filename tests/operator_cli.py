"""The command line as an operator uses it: in this process with the environment of a shell, or on its own."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from lock_interceptor.ops import cli


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, if that is JSON."""
        return json.loads(self.out)


class Operator:
    """Somebody at a shell, with these variables."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.application = ""

    def exports(self, **variables: object) -> None:
        """Set variables; None takes one away."""
        for name, value in variables.items():
            if value is None:
                self._monkeypatch.delenv(name, raising=False)
            else:
                self._monkeypatch.setenv(name, str(value))

    def runs(self, *arguments: str) -> Ended:
        """Run a command line in this process."""
        self._capsys.readouterr()
        status = cli.main(arguments)
        said = self._capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return Ended(status, said.out, said.err)


async def run_beside(*arguments: str, **variables: str) -> Ended:
    """Run a command line in a process of its own, while the test goes on."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lock_interceptor",
        *arguments,
        env={**os.environ, **variables},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())
