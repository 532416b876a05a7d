"""`LockSettings`: the only reader of the environment."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.marker import MAX_LEASE, MAX_NAME_BYTES, MIN_LEASE

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
    pairs = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        host, separator, port = part.rpartition(":")
        if not separator:
            host, port = part, "26379"
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError("must be host:port,host:port,...")
        pairs.append((host.strip("[]"), int(port)))
    return tuple(pairs)


def _between(low: timedelta, high: timedelta) -> AfterValidator:
    def check(value: timedelta) -> timedelta:
        if not low <= value <= high:
            raise ValueError(f"must be {low.total_seconds():g} to {high.total_seconds():g} seconds")
        return value

    return AfterValidator(check)


Seconds = Annotated[timedelta, BeforeValidator(_from_seconds)]
Hosts = Annotated[tuple[tuple[str, int], ...], NoDecode, BeforeValidator(_hosts)]


def _variable(*names: str) -> AliasChoices:
    return AliasChoices(*names)


class LockSettings(BaseSettings):
    """How to reach Redis, and how locks behave; read from the environment unless given here.

    Every field has an environment variable of its name in capitals; where it differs or has a second
    spelling, `validation_alias` tells. Durations are timedeltas here and seconds in the environment.

    Raises:
        LockConfigurationError: one or more values are invalid; all of them are named, no secret is shown.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    application_name: str = Field(
        "default",
        min_length=1,
        max_length=MAX_NAME_BYTES,
        validation_alias=_variable("APPLICATION_NAME", "ATLAN_APPLICATION_NAME"),
    )
    """Scope of the lock names: two applications may use one name for two locks."""
    redis_url: SecretStr | None = None
    """``redis://``, ``rediss://`` (TLS) or ``unix://``; goes before the single settings below."""
    redis_host: str = "localhost"
    redis_port: int = Field(6379, ge=1, le=65535)
    redis_db: int = Field(0, ge=0)
    redis_username: str | None = None
    redis_password: SecretStr | None = None
    redis_tls: bool = False
    redis_tls_ca_file: Path | None = None
    redis_tls_cert_file: Path | None = None
    redis_tls_key_file: Path | None = None
    redis_sentinel_hosts: Hosts = ()
    """``host:port`` of each Sentinel, separated by commas."""
    redis_sentinel_service: str = Field(
        "mymaster",
        validation_alias=_variable("REDIS_SENTINEL_SERVICE", "REDIS_SENTINEL_SERVICE_NAME"),
    )
    redis_sentinel_username: str | None = None
    redis_sentinel_password: SecretStr | None = None
    redis_cluster: bool = False
    disabled: bool = Field(default=False, validation_alias=_variable("IS_LOCKING_DISABLED"))
    """Run everything unlocked. Said once per worker, loudly."""
    retry_interval: Annotated[Seconds, _between(timedelta(milliseconds=100), timedelta(minutes=5))] = Field(
        timedelta(seconds=5),
        validation_alias=_variable("LOCK_RETRY_INTERVAL", "LOCK_RETRY_INTERVAL_SECONDS"),
    )
    """How often a waiter asks again when nothing woke it."""
    lease: Annotated[Seconds, _between(MIN_LEASE, MAX_LEASE)] = Field(
        timedelta(seconds=30), validation_alias=_variable("LOCK_LEASE_SECONDS")
    )
    """How long a dead worker's place stays taken. Renewed every third of it."""
    max_wait: Annotated[Seconds, _between(timedelta(0), timedelta(hours=1))] = Field(
        timedelta(seconds=30), validation_alias=_variable("LOCK_MAX_WAIT_SECONDS")
    )
    """How long one attempt waits inside a worker before it yields its permit, keeping its place."""
    durability: Durability | None = Field(None, validation_alias=_variable("LOCK_DURABILITY"))
    """``primary``, ``failover`` or ``strict``; by default as suits the kind of Redis."""
    key_prefix: str = Field(
        "lock", pattern=r"^[A-Za-z0-9_.:-]{1,64}$", validation_alias=_variable("LOCK_KEY_PREFIX")
    )
    """What all keys and channels in Redis begin with."""

    def __init__(self, **values: Any) -> None:
        """Read the environment; keyword arguments go before it."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            # `from None`: the original may show values, and a value may be a password
            raise LockConfigurationError(_all_problems(error)) from None

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
        if self.redis_url is not None and not _is_redis_url(self.redis_url.get_secret_value()):
            problems.append("REDIS_URL must look like redis://[user:password@]host[:port][/db]")
        if (self.redis_tls_cert_file is None) != (self.redis_tls_key_file is None):
            problems.append("REDIS_TLS_CERT_FILE and REDIS_TLS_KEY_FILE go together")
        for name in ("redis_tls_ca_file", "redis_tls_cert_file", "redis_tls_key_file"):
            path = getattr(self, name)
            if path is not None and not path.is_file():
                problems.append(f"{name.upper()}: there is no file {str(path)!r}")
        if problems:
            raise ValueError("\n".join(problems))
        return self


def _is_redis_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("redis", "rediss", "unix")
            and (parts.port is None or parts.port > 0)
            and bool(parts.path if parts.scheme == "unix" else parts.hostname)
        )
    except ValueError:
        return False


def _all_problems(error: ValidationError) -> str:
    """One line for each problem: the variable, what is wrong, and the value unless it could be secret."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        message = problem["msg"].removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        if not problem["loc"]:
            lines.extend(problem["msg"].removeprefix("Value error, ").splitlines())
            continue
        name = str(problem["loc"][0])
        variable = _variable_of(name)
        shown = "" if problem["type"] == "extra_forbidden" or _secret(variable) else _shown(problem["input"])
        lines.append(f"{variable}: {message}{shown}")
    listed = "\n".join(f"  - {line}" for line in lines)
    return f"invalid lock settings, {len(lines)} problem(s):\n{listed}"


def _variable_of(location: str) -> str:
    field = LockSettings.model_fields.get(location)
    if field is not None and isinstance(field.validation_alias, AliasChoices):
        return str(field.validation_alias.choices[0])
    return location.upper()


def _secret(variable: str) -> bool:
    return variable == "REDIS_URL" or "PASSWORD" in variable


def _shown(value: object) -> str:
    text = repr(value)
    return f" (it is {text if len(text) <= 60 else text[:57] + '...'})"
