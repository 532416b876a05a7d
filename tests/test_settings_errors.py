"""Mistakes in the settings are told all at once, by the names that the user used."""

from datetime import timedelta
from typing import Any

import pytest
from variables import unset_all

from lock_interceptor import LockConfigurationError, LockSettings


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable but those of the test."""
    unset_all(monkeypatch)


def problems(**arguments: Any) -> list[str]:
    """What is wrong, one line each."""
    with pytest.raises(LockConfigurationError) as caught:
        LockSettings(**arguments)
    first, *lines = str(caught.value).splitlines()
    assert first == f"invalid lock settings, {len(lines)} problem(s):"
    assert all(line.startswith("  - ") for line in lines)
    return [line.removeprefix("  - ") for line in lines]


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("APPLICATION_NAME", "  ", r"string should match pattern '\S' (it is '  ')"),
        ("APPLICATION_NAME", "x" * 1025, "string should have at most 1024 characters (it is 'xxx"),
        ("ATLAN_APPLICATION_NAME", "\udc80", "input should be a valid string"),
        ("REDIS_URL", "redis", "must look like redis://[user:password@]host[:port][/db], with the password"),
        ("REDIS_URL", "redis://", "must look like redis://"),
        ("REDIS_URL", "redis://:a/b@host", "percent-encoded"),
        ("REDIS_URL", "redis://me:1#2@host", "percent-encoded"),
        ("REDIS_URL", "redis://host:port", "must look like redis://"),
        ("REDIS_URL", "redis://host:0", "must look like redis://"),
        ("REDIS_URL", "unix://", "must look like redis://"),
        ("REDIS_HOST", "redis:6379", "must be a host alone: its port goes into REDIS_PORT"),
        ("REDIS_HOST", "redis://redis", "a whole URL into REDIS_URL"),
        ("REDIS_HOST", " ", "must be a host alone"),
        ("REDIS_PORT", "0", "input should be greater than or equal to 1 (it is '0')"),
        ("REDIS_PORT", "65536", "input should be less than or equal to 65535"),
        ("REDIS_PORT", "tcp://10.0.0.1:6379", "Kubernetes sets it like this for a Service named redis"),
        ("REDIS_DB", "-1", "input should be greater than or equal to 0"),
        ("REDIS_TLS", "perhaps", "input should be a valid boolean"),
        ("REDIS_TLS_CA_FILE", "/nowhere.pem", "path does not point to a file (it is '/nowhere.pem')"),
        ("REDIS_TLS_CA_FILE", "/", "path does not point to a file"),
        ("REDIS_SENTINEL_HOSTS", "a:b", "must be host:port,host:port,... (it is 'a:b')"),
        ("REDIS_SENTINEL_HOSTS", "a:0", "must be host:port"),
        ("REDIS_SENTINEL_HOSTS", "a:65536", "must be host:port"),
        ("REDIS_SENTINEL_HOSTS", "::1", "must be host:port"),
        ("REDIS_SENTINEL_HOSTS", ":26379", "must be host:port"),
        ("REDIS_SENTINEL_HOSTS", "a b", "must be host:port"),
        ("REDIS_SENTINEL_HOSTS", "redis://a:1", "must be host:port"),
        ("IS_LOCKING_DISABLED", "maybe", "input should be a valid boolean"),
        ("LOCK_RETRY_INTERVAL", "0", "must be 0.1 to 300 seconds (it is '0')"),
        ("LOCK_RETRY_INTERVAL_SECONDS", "5m", "must be a number of seconds (it is '5m')"),
        ("LOCK_LEASE_SECONDS", "0.5", "must be 1 to 86400 seconds"),
        ("LOCK_LEASE_SECONDS", "PT30S", "must be a number of seconds"),
        ("LOCK_LEASE_SECONDS", "nan", "must be a number of seconds"),
        ("LOCK_LEASE_SECONDS", "inf", "must be a number of seconds"),
        ("LOCK_MAX_WAIT_SECONDS", "-1", "must be 0 to 3600 seconds"),
        ("LOCK_DURABILITY", "high", "input should be 'primary', 'failover' or 'strict' (it is 'high')"),
        ("LOCK_KEY_PREFIX", "a b", "string should match pattern"),
        ("LOCK_KEY_PREFIX", "{lock}", "string should match pattern"),
    ],
)
def test_malformed_value(monkeypatch: pytest.MonkeyPatch, variable: str, text: str, problem: str) -> None:
    """The message names the variable as the user set it, what it has to be, and what it is."""
    monkeypatch.setenv(variable, text)
    (line,) = problems()
    assert line.startswith(f"{variable}: ")
    assert problem in line


def test_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever repairs a deployment sees everything that is malformed in one go."""
    wrong = {
        "REDIS_URL": "http://redis",
        "REDIS_PORT": "six",
        "REDIS_TLS_CA_FILE": "/nowhere.pem",
        "REDIS_SENTINEL_HOSTS": "a:b",
        "IS_LOCKING_DISABLED": "maybe",
        "LOCK_RETRY_INTERVAL_SECONDS": "soon",
        "LOCK_LEASE_SECONDS": "0",
        "LOCK_KEY_PREFIX": "a b",
    }
    for name, text in wrong.items():
        monkeypatch.setenv(name, text)
    assert [line.split(":")[0] for line in problems(max_wait="long")] == [
        *list(wrong)[:-1],
        "max_wait",
        "LOCK_KEY_PREFIX",
    ]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (
            {"REDIS_SENTINEL_HOSTS": "a", "REDIS_CLUSTER": "1"},
            ["REDIS_SENTINEL_HOSTS and REDIS_CLUSTER exclude"],
        ),
        ({"REDIS_DB": "1", "REDIS_CLUSTER": "1"}, ["REDIS_DB must be 0 with REDIS_CLUSTER"]),
        (
            {"REDIS_URL": "redis://r", "REDIS_SENTINEL_HOSTS": "a"},
            ["REDIS_URL and REDIS_SENTINEL_HOSTS exclude"],
        ),
        (
            {"REDIS_URL": "redis://r", "REDIS_SENTINEL_HOSTS": "a", "REDIS_CLUSTER": "1", "REDIS_DB": "1"},
            [
                "REDIS_SENTINEL_HOSTS and REDIS_CLUSTER",
                "REDIS_DB must be 0",
                "REDIS_URL and REDIS_SENTINEL_HOSTS",
            ],
        ),
    ],
)
def test_contradictions(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: list[str]
) -> None:
    """Values that are fine alone but exclude each other are refused, all of them together."""
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    found = problems()
    assert len(found) == len(expected)
    assert all(line.startswith(start) for line, start in zip(found, expected, strict=True))


def test_arguments_are_named_as_given() -> None:
    """A mistake in code names the argument, with a hint when there is no such setting."""
    assert problems(lease=timedelta(0)) == ["lease: must be 1 to 86400 seconds (it is datetime.timedelta(0))"]
    assert problems(redis_hots="r") == ["redis_hots: there is no such setting"]
    assert problems(redis_url=3) == ["redis_url: input should be a valid string"]


def test_long_values_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole file in the wrong variable does not fill the log."""
    monkeypatch.setenv("REDIS_PORT", "x" * 10_000)
    (line,) = problems()
    assert len(line) < 200
