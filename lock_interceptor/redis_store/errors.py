"""Errors of redis-py to ours, in this one place.

Its classes mislead: a wrong password is a ``ConnectionError``, and what a script runs into is a bare
``ResponseError``. So refusals are looked for first, and whatever is not known counts as "no answer".
"""

from __future__ import annotations

import re
import ssl
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions as redis
from redis.asyncio.sentinel import MasterNotFoundError

from lock_interceptor import telemetry
from lock_interceptor.errors import LockConfigurationError, LockStoreUnavailable
from lock_interceptor.lease import printable

# What may go wrong; anything else is a mistake somewhere, of redis-py or ours.
_EXPECTED = (redis.RedisError, redis.RedisClusterException, OSError, TimeoutError)
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
_USER = re.compile(r"\buser \S+ has no(?= permission)", re.IGNORECASE)
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
_NO_CLUSTER = "Cluster mode is not enabled"
_REPLICA = "a replica takes no locks: the settings have to lead to the primary, also after a failover"
# What passes, perhaps when somebody helps: its class or words, and what that somebody should do.
_PASSING: tuple[tuple[type[Exception] | str, str], ...] = (
    (redis.OutOfMemoryError, "its memory is full: make room or raise maxmemory; held locks are renewed yet"),
    (redis.ReadOnlyError, _REPLICA),
    ("previous master is now a slave", _REPLICA),
    (redis.MasterDownError, _REPLICA),
    (redis.BusyLoadingError, "it serves when it has loaded its data"),
    (redis.MovedError, "it belongs to a Cluster: set REDIS_CLUSTER=true"),
    (redis.ClusterDownError, "look at its CLUSTER INFO"),
    (redis.RedisClusterException, "look at CLUSTER INFO of its nodes"),
    ("NOREPLICAS", "look at its replicas, and at min-replicas-to-write"),
    ("MISCONF", "look at its log and at its disk"),
    ("BUSY ", "SCRIPT KILL ends what blocks it"),
    ("max number of clients", "raise maxclients, or find out who connects so often"),
    ("writing to socket. Connection lost", "it ends connections at once: it may have reached its maxclients"),
    ("UNBLOCKED", "it is not the primary any more"),
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
        _forget_user(error)
        if not isinstance(error, _EXPECTED):
            # as text, since some loggers would show local variables
            where_from = "".join(traceback.format_exception(error))
            telemetry.unexpected_error(where, error, where_from)
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
    denial = _behind(error, redis.NoPermissionError)
    if denial or _has(text, _RIGHTS):
        return LockConfigurationError(_denied(where, _short(str(denial or text))))
    if (tls_error := _behind(error, ssl.SSLError)) or _has(text, _TLS):
        return LockConfigurationError(
            f"TLS to Redis at {where} fails ({_short(str(tls_error or text))}): check REDIS_TLS and "
            "REDIS_TLS_CA_FILE, REDIS_TLS_CERT_FILE, REDIS_TLS_KEY_FILE"
        )
    if _has(text, _UNSUITABLE):
        return LockConfigurationError(
            f"the server at {where} cannot run the lock's scripts ({_short(text)}): it has to be Redis 7 "
            "or later, or Valkey"
        )
    if _NO_CLUSTER in text:
        return LockConfigurationError(f"Redis at {where} is not a Cluster: set REDIS_CLUSTER=false")
    if isinstance(error, TimeoutError | redis.TimeoutError):
        reason = "no answer in time"
    elif isinstance(error, _EXPECTED):
        reason = _short(text) or type(error).__name__
    else:
        reason = _short(repr(error))
    remedy = next((f" ({remedy})" for what, remedy in _PASSING if _is(error, what)), "")
    return LockStoreUnavailable(f"Redis at {where}: {reason}{remedy}")


def _denied(where: str, said: str) -> str:
    if "'sentinel" in said.lower():
        return (
            f"the user at the Sentinels may not ask for {where} ({said}): allow the one in "
            "REDIS_SENTINEL_USERNAME, or the default user, the command sentinel|masters"
        )
    return (
        f"the Redis user may not do what a lock needs at {where} ({said}): it needs its keys and channels "
        "(the prefix in LOCK_KEY_PREFIX) and the commands that docs/deploying.md lists"
    )


def _is(error: Exception, what: type[Exception] | str) -> bool:
    return what in str(error) if isinstance(what, str) else isinstance(error, what)


def _has(text: str, marks: tuple[str, ...]) -> bool:
    return any(mark.lower() in text.lower() for mark in marks)


def _short(text: str) -> str:
    first = printable(text.splitlines()[0]) if text else ""
    return first if len(first) <= 200 else f"{first[:197]}..."


def _behind(error: BaseException, kind: type[Exception]) -> BaseException | None:
    """The error of this kind that stands behind another one, if there is one. A cut connection is none."""
    cut = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
    return next(
        (each for each in _chain(error) if isinstance(each, kind) and not isinstance(each, cut)), None
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _forget_user(error: BaseException) -> None:
    """Some servers name the user: half of a login has no place in a workflow's history."""
    for each in filter(lambda each: isinstance(each, redis.RedisError), _chain(error)):
        each.args = tuple(
            _USER.sub("this user has no", said) if isinstance(said, str) else said for said in each.args
        )
