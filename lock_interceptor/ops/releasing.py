"""``lock-interceptor release``: take a lock away from one holder."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lock_interceptor.ops.cli import DECLINED, NOT_FOUND, USAGE
from lock_interceptor.ops.endings import carry_out, ending, read_settings
from lock_interceptor.ops.listing import App, Json
from lock_interceptor.ops.showing import Key, Name, holder_as_dict, look
from lock_interceptor.ops.texts import duration, make_console, print_json, say, who
from lock_interceptor.redis_store.survey import LockDetails, LockSurvey
from lock_interceptor.settings import LockSettings
from lock_interceptor.store import HolderState


def release(
    name: Name,
    *,
    token: Annotated[int, typer.Option("--token", help="The holder's token, as show tells it.")],
    key: Key = None,
    app: App = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Take a lock away from one holder, for when its worker is gone or stuck.

    The holder hears of it at its next renewal, within a third of its lease, and its attempt ends as
    LockLost, which Temporal retries. The slot is free at once: a body that ignores being stopped goes on
    beside the next one. Whoever is dead loses the lock by itself at the end of its lease.
    """
    settings = read_settings(app)
    if not yes and (as_json or not _somebody_is_there()):
        raise ending("nobody is there to be asked: say --yes", USAGE)
    details = carry_out(look(settings, name, key, 0))
    holder = next((each for each in details.state.holders if each.token == token), None)
    if holder is None:
        raise _no_such_holder(details, token)
    if not yes:
        _explain(details, holder)
        if not typer.confirm("Release it?", err=True):
            raise ending("nothing was done", DECLINED)
    done = carry_out(_revoke(settings, details, token))
    if as_json:
        print_json({"released": done, "lock": str(details.counts.lock), **holder_as_dict(holder)})
    elif done:
        text = (
            f"released: slot {holder.slot} of {details.counts.lock} is free, {details.state.waiting} waiting"
        )
        say(make_console(), text)
    if not done:
        raise ending("it has just been given back, or its lease has ended: nothing was done", NOT_FOUND)


async def _revoke(settings: LockSettings, details: LockDetails, token: int) -> bool:
    survey = LockSurvey(settings)
    try:
        return await survey.revoke(details.counts.redis_key, token=token, limit=details.counts.limit)
    finally:
        await survey.close()


def _somebody_is_there() -> bool:
    return sys.stdin.isatty()


def _explain(details: LockDetails, holder: HolderState) -> None:
    console = make_console(stderr=True)
    say(
        console, f"{details.counts.lock}, slot {holder.slot}, held for {duration(holder.held_for)} by", "bold"
    )
    say(console, f"  {who(holder.party)}")
    say(
        console,
        "Its slot is free at once, and the next in line takes it. The holder hears of it at its next "
        "renewal, within a third of its lease, and its attempt ends as LockLost; Temporal retries it. A body "
        "that ignores being stopped goes on meanwhile, so two may run: do this when its worker is known to "
        "be gone or stuck. A dead worker's lease ends by itself, this one in "
        f"{duration(holder.lease_left)}.",
        "yellow",
    )


def _no_such_holder(details: LockDetails, token: int) -> typer.Exit:
    holders = [
        f"  slot {each.slot}, token {each.token}, for {duration(each.held_for)}: {who(each.party)}"
        for each in details.state.holders
    ]
    present = "\n".join(["holders are", *holders]) if holders else "nobody holds it"
    return ending(f"no holder of {details.counts.lock} has the token {token}: {present}", NOT_FOUND)
