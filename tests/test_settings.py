"""`LockSettings`: what each variable does, and how mistakes are told without telling secrets."""

import traceback
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError
from variables import unset_all

from lock_interceptor import LockConfigurationError, LockSettings

SECRET = "hunter2"  # noqa: S105 - of nothing
FILE = __file__


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable but those of the test."""
    unset_all(monkeypatch)


def plain(value: object) -> object:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("APPLICATION_NAME", "orders", "application_name", "orders"),
        ("ATLAN_APPLICATION_NAME", "orders", "application_name", "orders"),
        ("REDIS_URL", f"rediss://me:{SECRET}@r:1/2", "redis_url", f"rediss://me:{SECRET}@r:1/2"),
        ("REDIS_HOST", "redis.svc", "redis_host", "redis.svc"),
        ("REDIS_PORT", "6380", "redis_port", 6380),
        ("REDIS_DB", "3", "redis_db", 3),
        ("REDIS_USERNAME", "me", "redis_username", "me"),
        ("REDIS_PASSWORD", SECRET, "redis_password", SECRET),
        ("REDIS_TLS", "true", "redis_tls", True),
        ("REDIS_TLS_CA_FILE", FILE, "redis_tls_ca_file", Path(FILE)),
        (
            "REDIS_SENTINEL_HOSTS",
            "a:1, b ,[::1]:3,",
            "redis_sentinel_hosts",
            (("a", 1), ("b", 26379), ("::1", 3)),
        ),
        ("REDIS_SENTINEL_SERVICE", "orders", "redis_sentinel_service", "orders"),
        ("REDIS_SENTINEL_SERVICE_NAME", "orders", "redis_sentinel_service", "orders"),
        ("REDIS_SENTINEL_USERNAME", "me", "redis_sentinel_username", "me"),
        ("REDIS_SENTINEL_PASSWORD", SECRET, "redis_sentinel_password", SECRET),
        ("REDIS_CLUSTER", "1", "redis_cluster", True),
        ("IS_LOCKING_DISABLED", "true", "disabled", True),
        ("LOCK_RETRY_INTERVAL", "0.5", "retry_interval", timedelta(milliseconds=500)),
        ("LOCK_RETRY_INTERVAL_SECONDS", "7", "retry_interval", timedelta(seconds=7)),
        ("LOCK_LEASE_SECONDS", "60", "lease", timedelta(minutes=1)),
        ("LOCK_MAX_WAIT_SECONDS", "0", "max_wait", timedelta(0)),
        ("LOCK_DURABILITY", "strict", "durability", "strict"),
        ("LOCK_KEY_PREFIX", "acme:lock", "key_prefix", "acme:lock"),
    ],
)
def test_each_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, field: str, value: object
) -> None:
    """Each variable, under each of its names, sets its field and no other."""
    default = dict(LockSettings())
    monkeypatch.setenv(variable, text)
    found = dict(LockSettings())
    assert plain(found[field]) == value
    assert value != default[field]
    assert {**found, field: default[field]} == default


def test_client_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two files of a client certificate are set together."""
    monkeypatch.setenv("REDIS_TLS_CERT_FILE", FILE)
    with pytest.raises(
        LockConfigurationError, match="REDIS_TLS_CERT_FILE and REDIS_TLS_KEY_FILE go together"
    ):
        LockSettings()
    monkeypatch.setenv("REDIS_TLS_KEY_FILE", FILE)
    settings = LockSettings()
    assert settings.redis_tls_cert_file == settings.redis_tls_key_file == Path(FILE)


def test_defaults() -> None:
    """Without any variable: a Redis on this machine, locking on, the documented times."""
    settings = LockSettings()
    assert (settings.application_name, settings.key_prefix) == ("default", "lock")
    assert (settings.redis_host, settings.redis_port, settings.redis_db) == ("localhost", 6379, 0)
    assert settings.redis_sentinel_service == "mymaster"
    assert (settings.retry_interval, settings.lease, settings.max_wait) == (
        timedelta(seconds=5),
        timedelta(seconds=30),
        timedelta(seconds=30),
    )
    assert not any(
        (settings.disabled, settings.redis_tls, settings.redis_cluster, settings.redis_sentinel_hosts)
    )
    assert settings.redis_url is settings.redis_password is settings.durability is None


def test_only_documented_names_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that happens to be called like a field in code, such as DISABLED, is none of ours."""
    before = LockSettings()
    for name in ("DISABLED", "LEASE", "MAX_WAIT", "RETRY_INTERVAL", "DURABILITY", "KEY_PREFIX"):
        assert name.lower() in LockSettings.model_fields
        monkeypatch.setenv(name, "true")
        monkeypatch.setenv(name.lower(), "true")
    assert LockSettings() == before


def test_blank_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable, as composed files leave them, counts as not set, whatever its type."""
    before = LockSettings()
    for name in LockSettings.model_fields:
        monkeypatch.setenv(name.upper(), "")
    for name in ("LOCK_LEASE_SECONDS", "IS_LOCKING_DISABLED", "LOCK_DURABILITY", "LOCK_RETRY_INTERVAL"):
        monkeypatch.setenv(name, "")
    assert LockSettings() == before
    monkeypatch.setenv("LOCK_RETRY_INTERVAL_SECONDS", "7")
    assert LockSettings().retry_interval == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("first", "second", "field"),
    [
        ("APPLICATION_NAME", "ATLAN_APPLICATION_NAME", "application_name"),
        ("REDIS_SENTINEL_SERVICE", "REDIS_SENTINEL_SERVICE_NAME", "redis_sentinel_service"),
        ("LOCK_RETRY_INTERVAL", "LOCK_RETRY_INTERVAL_SECONDS", "retry_interval"),
    ],
)
def test_precedence(monkeypatch: pytest.MonkeyPatch, first: str, second: str, field: str) -> None:
    """An argument goes before the first name, that before the second, and that before the default."""
    as_field = {"retry_interval": lambda text: timedelta(seconds=float(text))}.get(field, str)
    monkeypatch.setenv(second, "2")
    assert getattr(LockSettings(), field) == as_field("2")
    assert getattr(LockSettings(**{field: as_field("3")}), field) == as_field("3")
    monkeypatch.setenv(first, "1")
    assert getattr(LockSettings(), field) == as_field("1")
    assert getattr(LockSettings(**{field: as_field("3")}), field) == as_field("3")


def test_argument_hides_a_malformed_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What code sets is not read from the environment at all."""
    monkeypatch.setenv("LOCK_LEASE_SECONDS", "soon")
    assert LockSettings(lease=timedelta(seconds=9)).lease == timedelta(seconds=9)


def test_arguments_by_field_name() -> None:
    """In code the fields' names are used, with durations as timedeltas and hosts as pairs."""
    settings = LockSettings(
        application_name="orders",
        lease=timedelta(seconds=10),
        max_wait=timedelta(minutes=1),
        disabled=True,
        redis_password=SECRET,
        redis_sentinel_hosts=[("a", 1)],
        key_prefix="x",
        durability="failover",
    )
    assert (settings.application_name, settings.disabled, settings.key_prefix) == ("orders", True, "x")
    assert (settings.lease, settings.max_wait) == (timedelta(seconds=10), timedelta(minutes=1))
    assert settings.redis_sentinel_hosts == (("a", 1),)
    assert plain(settings.redis_password) == SECRET


def test_immutable() -> None:
    """Settings do not change under those who read them."""
    settings = LockSettings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.disabled = True
    assert hash(settings) == hash(LockSettings())


def test_secrets_are_not_shown() -> None:
    """Neither repr, str nor a dump shows a password or the URL that may hold one."""
    settings = LockSettings(redis_url=f"redis://:{SECRET}@r", redis_password=SECRET)
    for text in (repr(settings), str(settings), settings.model_dump_json(), repr(dict(settings))):
        assert SECRET not in text


def everything_told(error: BaseException) -> str:
    """All that a log could get out of an error: message, chain, and what hangs on it."""
    told = [*traceback.format_exception(error), repr(error), repr(vars(error))]
    for link in (error.__cause__, error.__context__):
        told += [] if link is None else [everything_told(link), *map(repr, getattr(link, "errors", list)())]
    return "".join(told)


@pytest.mark.parametrize(
    "variables",
    [
        {"REDIS_URL": f"http://:{SECRET}@redis"},
        {"REDIS_URL": f"redis://:{SECRET}/#@redis"},
        {"REDIS_HOST": f"redis://:{SECRET}@redis"},
        {"REDIS_SENTINEL_HOSTS": f"redis://:{SECRET}@redis:x"},
        {"REDIS_PORT": f"redis://:{SECRET}@redis"},
        {"LOCK_DURABILITY": "none", "REDIS_PASSWORD": SECRET, "REDIS_SENTINEL_PASSWORD": SECRET},
        {"REDIS_CLUSTER": "1", "REDIS_SENTINEL_HOSTS": "a", "REDIS_PASSWORD": SECRET},
        {"REDIS_URL": f"redis://:{SECRET}@redis", "REDIS_SENTINEL_HOSTS": "a"},
    ],
)
def test_secrets_are_not_in_errors(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """No error tells a secret, even one in the wrong variable, nor does anything in its chain know one."""
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(LockConfigurationError) as caught:
        LockSettings()
    assert SECRET not in everything_told(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
