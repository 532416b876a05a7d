"""Errors of redis-py to ours, in this one place.

Its classes mislead: a wrong password is a ``ConnectionError``, and what a script runs into is a bare
``ResponseError``. So refusals are looked for first, and whatever is not known counts as "no answer".
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions as redis
from redis.asyncio.sentinel import MasterNotFoundError

from lock_interceptor.errors import LockConfigurationError, LockStoreUnavailable

# What the server says when a right is missing; inside a script it comes as a bare ResponseError.
_RIGHTS = (
    "NOPERM",
    "ACL failure",
    "The user executing the script",
    "No permissions",
    "can't run this command",
)
_PASSWORD = (
    "WRONGPASS",
    "NOAUTH",
    "invalid password",
    "invalid username",
    "without any password",
    "AUTH failed",
    "Authentication required",
    "AuthenticationError",
)
# What is left of a TLS error where redis-py lists the errors of several Sentinels.
_TLS = ("[SSL: CERT", "[SSL: TLSV1", "[SSL: SSLV3")
# What will never work on this server.
_UNSUITABLE = (
    "unknown command",
    "Unexpected engine",
    "Could not find scripting engine",
    "Error compiling",
    "compiling script",
)


@contextmanager
def translated(where: str, *, worked_before: bool = False) -> Iterator[None]:
    """Raise our errors for anything that goes wrong inside; `where` names the server for the message.

    A login that `worked_before` and is refused now may work again: passwords are changed in several steps,
    and nobody's work should fail for good in between.

    Raises:
        LockConfigurationError: the server refuses for good.
        LockStoreUnavailable: anything else; it may or may not have happened.
    """
    try:
        yield
    except (LockConfigurationError, LockStoreUnavailable):
        raise
    except Exception as error:
        raise _ours(
            error, where, LockStoreUnavailable if worked_before else LockConfigurationError
        ) from error


def _ours(
    error: Exception, where: str, refused: type[LockConfigurationError | LockStoreUnavailable]
) -> LockConfigurationError | LockStoreUnavailable:
    text = str(error)
    if isinstance(error, redis.AuthenticationError) or _has(text, _PASSWORD):
        variables = (
            "REDIS_SENTINEL_USERNAME and REDIS_SENTINEL_PASSWORD"
            if isinstance(error, MasterNotFoundError)
            else "REDIS_USERNAME and REDIS_PASSWORD, or the ones in REDIS_URL"
        )
        return refused(f"Redis at {where} refuses the login ({_short(text)}): check {variables}")
    if isinstance(error, redis.NoPermissionError) or _has(text, _RIGHTS):
        return LockConfigurationError(
            f"the Redis user may not do what a lock needs at {where} ({_short(text)}): it needs its keys and "
            "channels (the prefix in LOCK_KEY_PREFIX) and the commands that the README lists"
        )
    if (tls_error := _root_ssl(error)) or _has(text, _TLS):
        return LockConfigurationError(
            f"TLS to Redis at {where} fails ({_short(str(tls_error or text))}): check REDIS_TLS and "
            "REDIS_TLS_CA_FILE, REDIS_TLS_CERT_FILE, REDIS_TLS_KEY_FILE"
        )
    if _has(text, _UNSUITABLE):
        return LockConfigurationError(
            f"the server at {where} cannot run the lock's scripts ({_short(text)}): it has to be Redis 7 "
            "or later, or Valkey"
        )
    reason = "no answer in time" if isinstance(error, TimeoutError | redis.TimeoutError) else _short(text)
    return LockStoreUnavailable(f"Redis at {where}: {reason or type(error).__name__}")


def _has(text: str, marks: tuple[str, ...]) -> bool:
    return any(mark.lower() in text.lower() for mark in marks)


def _short(text: str) -> str:
    first = text.splitlines()[0] if text else ""
    return first if len(first) <= 200 else f"{first[:197]}..."


def _root_ssl(error: BaseException) -> BaseException | None:
    """The TLS error behind a connection error, if there is one. A cut connection is not one."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None
