"""From what somebody types to locks: patterns for many, and a name as it is shown for one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.ops.cli import NOT_FOUND, USAGE
from lock_interceptor.ops.endings import ending
from lock_interceptor.redis_store.keys import read_key
from lock_interceptor.redis_store.survey import LockDetails, LockSurvey
from lock_interceptor.settings import LockSettings
from lock_interceptor.store import LockId


def matching(pattern: str | None) -> Callable[[LockId], bool]:
    """Whether a lock's name, or all of its label, fits: ``*`` is any text and ``?`` any character.

    Brackets stand for themselves, since labels have them.
    """
    if pattern is None:
        return lambda lock: bool(lock.name)
    text = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    fits = re.compile(text, re.DOTALL).fullmatch
    return lambda lock: fits(lock.name) is not None or fits(str(lock)) is not None


def _candidates(application: str, name: str, key: str | None) -> list[LockId]:
    """What ``name`` or ``name[key]`` may mean: both parts may have brackets in them."""
    if key is not None:
        return [LockId(application, name, key)]
    cuts = [cut for cut, each in enumerate(name) if each == "[" and 0 < cut < len(name) - 2]
    keyed = [LockId(application, name[:cut], name[cut + 1 : -1]) for cut in cuts if name.endswith("]")]
    return [LockId(application, name), *keyed]


async def locate(
    survey: LockSurvey, settings: LockSettings, name: str, key: str | None, *, waiters: int
) -> LockDetails:
    """Find the lock that is meant, and look at it.

    Raises:
        Exit: there is none, or the name may mean several.
        LockStoreUnavailable: no answer in time.
        LockConfigurationError: Redis refuses.
    """
    application = settings.application_name
    if key is None and read_key(settings.key_prefix, name):
        redis_keys = [name]
    else:
        redis_keys = [survey.key_of(lock) for lock in _candidates(application, name, key)]
    found = [details for each in redis_keys if (details := await survey.look(each, waiters=waiters))]
    if not found and key is None:
        # what is not printable, or too long for a key, is shown in another way than it is typed
        with contextlib.suppress(LockConfigurationError):  # without the right to search it stays unknown
            async for batch in survey.find(application, lambda lock: str(lock) == name):
                for counts in batch:
                    if details := await survey.look(counts.redis_key, waiters=waiters):
                        found.append(details)  # noqa: PERF401 - as it goes, for several may take long
    if not found:
        raise ending(
            f"nobody holds or waits for {LockId(application, name, key)} in application {application}; "
            "lock-interceptor list --all shows the locks of all applications",
            NOT_FOUND,
        )
    if len(found) > 1:
        several = "\n".join(f"  {each.counts.redis_key}" for each in found)
        raise ending(
            f"{name} may mean several locks: give --key, or one of these as the name\n{several}", USAGE
        )
    return found[0]
