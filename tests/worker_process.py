"""A worker in a process of its own, from a script in this folder: to be stopped, continued and killed."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from stage import Stage


@contextlib.contextmanager
def worker_process(stage: Stage, script: str, **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the script for this stage; it has to end well, and does so when its standard input ends."""
    url = stage.settings.redis_url
    assert url is not None
    variables = {
        **os.environ,
        "APPLICATION_NAME": stage.settings.application_name,
        "REDIS_URL": url.get_secret_value(),
        "LOCK_RETRY_INTERVAL": "0.5",
        **environment,
    }
    path = Path(__file__).with_name(script)
    command = [sys.executable, str(path), stage.temporal.address, stage.task_queue]
    process = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE)  # noqa: S603 - ours
    try:
        yield process
        process.communicate(timeout=20)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def stopped(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """While entered, the process does nothing."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)
