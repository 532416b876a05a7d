"""`LockSettings`: the only reader of the environment."""

from __future__ import annotations

import os
from collections.abc import Container
from datetime import timedelta
from typing import Annotated, Any, Literal, NoReturn, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    FilePath,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.spec import MAX_LEASE, MAX_NAME_BYTES, MIN_LEASE

Durability = Literal["primary", "failover", "strict"]


def _from_seconds(value: object) -> object:
    """Environment values are seconds; durations in code are timedeltas, and numbers are taken as seconds."""
    if isinstance(value, str):
        try:
            return timedelta(seconds=float(value))
        except (ValueError, OverflowError):
            raise ValueError("must be a number of seconds") from None
    return value


def _hosts(value: object) -> object:
    """``host:port,host:port`` to pairs; the port of a Sentinel is 26379 unless said."""
    if not isinstance(value, str):
        return value
    parts = (part.strip() for part in value.split(","))
    return tuple(_host_and_port(part) for part in parts if part)


def _host_and_port(text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        port = 26379 if parts.port is None else parts.port
        if parts.netloc == text and parts.hostname and port and not _odd(text):
            return parts.hostname, port
    except ValueError:
        pass
    raise ValueError("must be host:port,host:port,...")


def _odd(text: str) -> bool:
    """Whether it has what no host has: neither logins nor what terminals obey must get into messages."""
    return bool(set("@ ") & set(text)) or not text.isprintable()


def _host(value: str) -> str:
    if not value.strip() or set("/[]") & set(value) or _odd(value) or value.count(":") == 1:
        raise ValueError("must be a host alone: its port goes into REDIS_PORT, a whole URL into REDIS_URL")
    return value


def _port(value: object) -> object:
    if isinstance(value, str) and value.startswith("tcp://"):
        raise ValueError(
            "must be a number. Kubernetes sets it like this for a Service named redis: set it yourself, or "
            "enableServiceLinks to false"
        )
    return value


def _redis_url(value: SecretStr) -> SecretStr:
    try:
        parts = urlsplit(value.get_secret_value())
        place = parts.path if parts.scheme == "unix" else parts.hostname or ""
        # "#", "/" and "?" in a password that is not encoded cut it in two, and one half poses as the host
        cut = parts.fragment or (parts.scheme != "unix" and "@" in parts.path + parts.query)
        known = parts.scheme in ("redis", "rediss", "unix") and parts.port != 0
        if known and place and place.isprintable() and not cut:
            return value
    except ValueError:
        pass
    raise ValueError(
        "must look like redis://[user:password@]host[:port][/db], with the password percent-encoded"
    )


def _encodable(value: SecretStr) -> SecretStr:
    try:
        value.get_secret_value().encode()
    except UnicodeEncodeError:  # when logging in, it would quote the password
        raise ValueError("must be text that UTF-8 can encode") from None
    return value


def _between(low: timedelta, high: timedelta) -> AfterValidator:
    def check(value: timedelta) -> timedelta:
        if low <= value <= high:
            return value
        raise ValueError(f"must be {low.total_seconds():g} to {high.total_seconds():g} seconds")

    return AfterValidator(check)


Seconds = Annotated[timedelta, BeforeValidator(_from_seconds)]
Secret = Annotated[SecretStr, AfterValidator(_encodable)]
Hosts = Annotated[tuple[tuple[str, int], ...], NoDecode, BeforeValidator(_hosts)]


class LockSettings(BaseSettings):
    """How to reach Redis, and how locks behave; read from the environment unless given here.

    Every field has an environment variable of its name in capitals; where it differs or has a second
    spelling, `validation_alias` tells. Durations are timedeltas here and seconds in the environment.

    Raises:
        LockConfigurationError: one or more values are invalid; all of them are named, no secret is shown.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, env_ignore_empty=True
    )

    application_name: str = Field(
        "default",
        pattern=r"\S",
        max_length=MAX_NAME_BYTES,
        validation_alias=AliasChoices("APPLICATION_NAME", "ATLAN_APPLICATION_NAME"),
    )
    """Scope of the lock names: two applications may use one name for two locks."""
    redis_url: Annotated[Secret, AfterValidator(_redis_url)] | None = None
    """``redis://``, ``rediss://`` (TLS) or ``unix://``; goes before the single settings below."""
    redis_host: Annotated[str, AfterValidator(_host)] = "localhost"
    redis_port: Annotated[int, BeforeValidator(_port)] = Field(6379, ge=1, le=65535)
    redis_db: int = Field(0, ge=0)
    redis_username: str | None = Field(None, repr=False)
    redis_password: Secret | None = None
    redis_tls: bool = False
    redis_tls_ca_file: FilePath | None = None
    redis_tls_cert_file: FilePath | None = None
    redis_tls_key_file: FilePath | None = None
    redis_sentinel_hosts: Hosts = ()
    """``host:port`` of each Sentinel, separated by commas."""
    redis_sentinel_service: str = Field(
        "mymaster",
        pattern=r"^[^\x00-\x20\x7f]+$",
        validation_alias=AliasChoices("REDIS_SENTINEL_SERVICE", "REDIS_SENTINEL_SERVICE_NAME"),
    )
    redis_sentinel_username: str | None = Field(None, repr=False)
    redis_sentinel_password: Secret | None = None
    redis_cluster: bool = False
    disabled: bool = Field(default=False, validation_alias=AliasChoices("IS_LOCKING_DISABLED"))
    """Run everything unlocked. Said once per worker, loudly."""
    retry_interval: Annotated[Seconds, _between(timedelta(milliseconds=100), timedelta(minutes=5))] = Field(
        timedelta(seconds=5),
        validation_alias=AliasChoices("LOCK_RETRY_INTERVAL", "LOCK_RETRY_INTERVAL_SECONDS"),
    )
    """How often a waiter asks again when nothing woke it."""
    lease: Annotated[Seconds, _between(MIN_LEASE, MAX_LEASE)] = Field(
        timedelta(seconds=30), validation_alias=AliasChoices("LOCK_LEASE_SECONDS")
    )
    """How long a dead worker's place stays taken. Renewed every third of it."""
    max_wait: Annotated[Seconds, _between(timedelta(0), timedelta(hours=1))] = Field(
        timedelta(seconds=30), validation_alias=AliasChoices("LOCK_MAX_WAIT_SECONDS")
    )
    """How long one attempt waits inside a worker before it yields its permit, keeping its place."""
    max_waiters: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, validation_alias=AliasChoices("LOCK_MAX_WAITERS")
    )
    """How many activities wait inside a worker at once; by default 25, or 1000 with `LockPlugin`."""
    durability: Durability | None = Field(None, validation_alias=AliasChoices("LOCK_DURABILITY"))
    """``primary``, ``failover`` or ``strict``; by default as suits the kind of Redis."""
    key_prefix: str = Field(
        "lock", pattern=r"^[A-Za-z0-9_.:-]{1,64}$", validation_alias=AliasChoices("LOCK_KEY_PREFIX")
    )
    """What all keys and channels in Redis begin with."""

    def __init__(self, **values: Any) -> None:
        """Read the environment; keyword arguments, named like the fields, go before it."""
        # fields go by their variables, since pydantic would read LEASE and DISABLED from the environment too
        by_variable = {_variables(name)[0] if name in _RENAMED else name: values[name] for name in values}
        try:
            super().__init__(**by_variable)
        except ValidationError as error:
            problems = _all_problems(error, values)
        else:
            return
        # not while the original is handled: it knows the values, one may be a password, and it would be kept
        raise LockConfigurationError(problems)

    def __getstate__(self) -> NoReturn:
        """Refuse to be pickled: the passwords would be in it as they are."""
        raise TypeError("LockSettings hold passwords and are not pickled: let each process read its own")

    @model_validator(mode="after")
    def _agree(self) -> Self:
        problems = []
        if self.redis_sentinel_hosts and self.redis_cluster:
            problems.append("REDIS_SENTINEL_HOSTS and REDIS_CLUSTER exclude each other")
        if self.redis_cluster and self.redis_db:
            problems.append("REDIS_DB must be 0 with REDIS_CLUSTER")
        if self.redis_url is not None and self.redis_sentinel_hosts:
            problems.append(
                "REDIS_URL and REDIS_SENTINEL_HOSTS exclude each other: Sentinel names the server"
            )
        if (self.redis_tls_cert_file is None) != (self.redis_tls_key_file is None):
            problems.append("REDIS_TLS_CERT_FILE and REDIS_TLS_KEY_FILE go together")
        if problems:
            raise ValueError("\n".join(problems))
        return self


_RENAMED = frozenset(name for name, field in LockSettings.model_fields.items() if field.validation_alias)


def _variables(field: str) -> list[str]:
    alias = LockSettings.model_fields[field].validation_alias
    return [str(name) for name in alias.choices] if isinstance(alias, AliasChoices) else [field.upper()]


def _all_problems(error: ValidationError, given: Container[str]) -> str:
    """One line for each problem: the variable, what is wrong, and the value unless it could be secret."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        message = problem["msg"].removeprefix("Value error, ")
        if not problem["loc"]:
            lines.extend(message.splitlines())
        elif problem["type"] == "extra_forbidden":
            lines.append(f"{problem['loc'][0]}: there is no such setting")
        else:
            name = _name_of(str(problem["loc"][0]), given)
            lines.append(f"{name}: {message[:1].lower()}{message[1:]}{_shown(name, problem['input'])}")
    listed = "\n".join(f"  - {line}" for line in lines)
    return f"invalid lock settings, {len(lines)} problem(s):\n{listed}"


def _name_of(location: str, given: Container[str]) -> str:
    """The name under which the value was given: the argument, or the one of its variables that is set."""
    for field in LockSettings.model_fields:
        variables = _variables(field)
        if location in (field, *variables):
            return field if field in given else next(filter(os.environ.get, variables), variables[0])
    return location


def _shown(name: str, value: object) -> str:
    text = repr(value)
    # a URL with a password may have been put into the wrong variable
    if name.upper() == "REDIS_URL" or "PASSWORD" in name.upper() or "@" in text:
        return ""
    return f" (it is {text if len(text) <= 60 else text[:57] + '...'})"
