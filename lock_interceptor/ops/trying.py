"""``lock-interceptor demo`` and ``dev``: see it work, and servers to try it on."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lock_interceptor.dev import DevServerError, DevServers, RedisServer, TemporalServer
from lock_interceptor.dev.demo.crew import DemoError
from lock_interceptor.dev.demo.plan import MAX_ORDERS, MIN_ORDERS
from lock_interceptor.dev.demo.promises import broken, evaluate
from lock_interceptor.dev.demo.run import run_demo
from lock_interceptor.dev.demo.timeline import timeline
from lock_interceptor.dev.demo.view import LiveView, PlainView, plain_console, promises_table
from lock_interceptor.ops.cli import BROKEN, UNAVAILABLE
from lock_interceptor.ops.endings import ending, interruptible

_LOOK_EVERY = 0.2


@contextmanager
def _ends_well() -> Iterator[None]:
    """Turn what may happen into a message and an exit status."""
    with interruptible("interrupted; all that was started has been ended"):
        try:
            yield
        except DevServerError as error:
            raise ending(str(error), UNAVAILABLE) from None
        except DemoError as error:
            raise ending(str(error), BROKEN) from None


@contextmanager
def _scratch() -> Iterator[Path]:
    """A directory that stays, and is named, when something goes wrong."""
    folder = Path(tempfile.mkdtemp(prefix="lock-interceptor-demo-"))
    try:
        yield folder
    except Exception:
        if any(folder.iterdir()):
            typer.echo(f"logs and journals of the workers: {folder}", err=True)
        else:
            folder.rmdir()
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    else:
        shutil.rmtree(folder, ignore_errors=True)


def demo(
    workflows: Annotated[
        int, typer.Option(min=MIN_ORDERS, max=MAX_ORDERS, help="How many workflows to run.")
    ] = 150,
    seed: Annotated[int, typer.Option(help="Another number makes another mix of work.")] = 7,
    svg: Annotated[Path, typer.Option(dir_okay=False, help="Where to draw the timeline.")] = Path(
        "demo-timeline.svg"
    ),
    plain: Annotated[
        bool, typer.Option("--plain", help="Print lines only; the default where there is no terminal.")
    ] = False,
) -> None:
    """See it work: two workers, some hundred workflows, one worker killed in the middle.

    Starts a Temporal dev server and Valkey of its own, runs the workflows without locks and then with a
    mutex, a limit of three and a lock per tenant, kills a worker while it holds slots, and ends with a table
    of promises, all measured, and a timeline. Takes about half a minute.
    """
    if not svg.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no directory {svg.parent}", param_hint="--svg")
    console = Console()
    if plain or not console.is_terminal:
        console, plain = plain_console(), True
    with _ends_well(), _scratch() as folder:
        with PlainView(console) if plain else LiveView(console) as view:
            run = run_demo(workflows=workflows, seed=seed, folder=folder, view=view)
        promises = evaluate(run)
        svg.write_text(timeline(run), encoding="utf-8")
        console.print(promises_table(promises))
        console.print(f"timeline: {svg.absolute()}", soft_wrap=True, highlight=False, markup=False)
        if broken(promises):
            raise typer.Exit(BROKEN)


def dev(
    temporal_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of Temporal; by default a free one.")
    ] = None,
    ui_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of Temporal's web UI; by default a free one.")
    ] = None,
    redis_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of Valkey; by default a free one.")
    ] = None,
) -> None:
    """Run a Temporal dev server and Valkey until Ctrl-C, for your own workers to try.

    Prints the variables to export, which `LockSettings` and Temporal's environment configuration read.
    """
    with (
        _ends_well(),
        contextlib.suppress(KeyboardInterrupt),
        DevServers(
            TemporalServer(port=temporal_port, ui_port=ui_port), RedisServer(port=redis_port)
        ) as servers,
    ):
        exports = "\n".join(f"export {name}={value}" for name, value in servers.environment().items())
        typer.echo(
            f"Temporal  {servers.temporal.address}\n"
            f"Web UI    {servers.temporal.ui_url}\n"
            f"Valkey    {servers.redis.url}\n\n{exports}\n\nCtrl-C ends both."
        )
        sys.stdout.flush()
        while servers.temporal.running and servers.redis.running:
            time.sleep(_LOOK_EVERY)
        gone = "Valkey" if servers.temporal.running else "Temporal"
        raise DevServerError(f"{gone} ended by itself")
