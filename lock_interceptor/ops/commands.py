"""The sub-commands, put together; this package but for ``cli.py`` is what the extra ``cli`` is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import lock_interceptor
from lock_interceptor.ops.examining import doctor
from lock_interceptor.ops.listing import list_locks
from lock_interceptor.ops.releasing import release
from lock_interceptor.ops.showing import show
from lock_interceptor.ops.trying import demo, dev
from lock_interceptor.ops.watching import watch

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Locks around Temporal activities: who holds them, who waits, and whether Redis is fit for it.",
    epilog="""Settings come from the environment, as for workers: REDIS_URL, APPLICATION_NAME and so on.

Examples:

\b
  lock-interceptor list                 all locks in use, the longest lines first
  lock-interceptor show 'stock[north]'  who holds it, since when, and who waits
  lock-interceptor watch                the busiest locks, live
  lock-interceptor release 'stock[north]' --token 1764489600123456
  lock-interceptor doctor               check settings, Redis, rights, replicas
  lock-interceptor demo                 two workers, one killed, every promise measured
  lock-interceptor dev                  a Temporal dev server and Valkey until Ctrl-C

\b
Exit statuses:
  0    done
  1    the demo broke a promise, or the doctor found a problem
  2    the command line makes no sense, or a name may mean several locks
  3    Redis, or a server or package that is needed, is not to be had
  4    no such lock, or no such holder
  5    the settings are wrong, or Redis refuses them: password, right, TLS
  6    the question was answered with no
  130  interrupted
""",
)

_EXAMPLES: dict[Callable[..., None], str] = {
    list_locks: """
  lock-interceptor list
  lock-interceptor list 'stock*' --limit 200
  lock-interceptor list --all --json | jq '.locks[] | select(.waiting > 100)'

The JSON has locks (each with lock, application, name, key, redis_key, held, limit, waiting, parked,
oldest_wait_seconds, longest_hold_seconds, usual_hold_seconds, settling_seconds), total, complete and
unreachable. What is not known is null.""",
    show: """
  lock-interceptor show stock
  lock-interceptor show 'stock[north]' --waiters 100
  lock-interceptor show stock --key north --json | jq '.holders[].workflow'

The JSON is that of list for one lock, with holders (slot, token, held_seconds, lease_left_seconds, workflow,
workflow_type, activity, activity_id, attempt, worker) and line (place, state, expected_wait_seconds, and
who).""",
    watch: """
  lock-interceptor watch
  lock-interceptor watch 'stock*' --interval 0.5
  lock-interceptor watch --all --json --count 10 > ten-looks.jsonl

With --json each look is one line: the JSON of list, with time and problem.""",
    release: """
  lock-interceptor show 'stock[north]'
  lock-interceptor release 'stock[north]' --token 1764489600123456
  lock-interceptor release stock --key north --token 1764489600123456 --yes --json

The JSON has released, lock, and the holder as show has it.""",
    doctor: """
  lock-interceptor doctor
  lock-interceptor doctor --verbose
  lock-interceptor doctor --json | jq '.findings[] | select(.level == "problem")'

Ends with 0 if all is well, warnings or not, with 1 if there is a problem, with 3 if Redis is not to be
reached. The JSON has status (ok, problems, unreachable) and findings: check, level (ok, warning, problem,
unknown), where, message, remedy.""",
    demo: """
  lock-interceptor demo
  lock-interceptor demo --workflows 300 --seed 42
  lock-interceptor demo --plain --svg build/timeline.svg

Ends with 0 if every promise was kept, with 1 if one was broken or could not be measured.""",
    dev: """
  lock-interceptor dev
  lock-interceptor dev --temporal-port 7233 --ui-port 8233 --redis-port 6379

Nothing is stored: what is in the servers ends with them.""",
}
for _command, _examples in _EXAMPLES.items():
    _name = "list" if _command is list_locks else _command.__name__
    app.command(_name, epilog=f"Examples:\n\n\b{_examples}")(_command)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(lock_interceptor.__version__)
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""
