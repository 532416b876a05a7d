"""Passwords and user names appear nowhere: not in logs, errors, or the reprs and pickles of our objects."""

import copy
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from certificates import tls_files
from redis_tools import eventually, new_claim, open_store, settings_for
from secret_failures import (
    FAILING,
    MARKERS,
    ODD,
    REFUSED_URL,
    RIGHT,
    SECRET,
    SENTINEL_SECRET,
    SENTINEL_USER,
    USER,
    Servers,
    everything_of,
    found_in,
    servers_with_secrets,
)
from servers import command

from lock_interceptor import LockError, LockInterceptor, LockSettings, RedisLockStore
from lock_interceptor.dev.process import HOST


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers_with_secrets(tls_files(tmp_path_factory.mktemp("tls"))) as servers:
        yield servers


@pytest.mark.parametrize("name", FAILING)
async def test_no_failure_shows_a_secret(
    servers: Servers, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong on the way to Redis, nothing that is raised or logged has a secret in it."""
    values = FAILING[name](servers)
    caplog.set_level(logging.DEBUG)
    shown = []
    with structlog.testing.capture_logs() as events:
        settings = settings_for(values.pop("url", None), lease=2, **values)
        interceptor = LockInterceptor(settings)
        shown += [repr(each) for each in (settings, interceptor, interceptor.store, RedisLockStore(settings))]
        async with open_store(settings) as store:
            with pytest.raises(LockError) as failed:
                await store.check()
            shown += everything_of(failed.value)
            if name not in REFUSED_URL:
                async with store.wakeups(new_claim()):
                    await eventually(lambda: _subscriber_failed(events), "the subscriber's own error")
    shown += [str(event) for event in events]
    shown += [f"{record.getMessage()} {record.__dict__}" for record in caplog.records]
    assert found_in(shown) == []


def _subscriber_failed(events: list[Any]) -> bool:
    # where only a script is refused there is nothing to hold against the subscriber
    return any(event["event"] in ("lock.wakeups_interrupted", "lock.wakeups_refused") for event in events)


async def test_the_odd_password_is_understood(servers: Servers) -> None:
    """The password of these tests works when it is right, in the URL and on its own: they do not miss it."""
    rules = ("on", f">{SECRET}", "allkeys", "allchannels", "+@all")
    command(servers.guarded, "ACL", "SETUSER", f"{USER}-2", *rules, password=RIGHT)
    values = FAILING["wrong user in the URL"](servers)
    async with open_store(values["url"].replace(f"{USER}:", f"{USER}-2:")) as store:
        await store.check()
    login = {"redis_username": f"{USER}-2", "redis_password": SECRET}
    async with open_store(
        settings_for(None, redis_port=servers.guarded.port, redis_host=HOST, **login)
    ) as store:
        await store.check()


def _with_all_secrets() -> LockSettings:
    return LockSettings(
        redis_username=USER,
        redis_password=SECRET,
        redis_sentinel_hosts="sentinel:1",
        redis_sentinel_username=SENTINEL_USER,
        redis_sentinel_password=SENTINEL_SECRET,
    )


def test_settings_show_no_secret() -> None:
    """Neither repr nor str of settings has a login, and no dump has a password, however it is made."""
    for settings in (_with_all_secrets(), LockSettings(redis_url=f"redis://{USER}:{MARKERS['pass']}@host")):
        assert found_in([repr(settings), str(settings), f"{settings}"]) == []
        dumps = [settings.model_dump(), settings.model_dump(mode="json"), settings.model_dump_json()]
        passwords = [MARKERS[name] for name in ("pass", "other", "sentinel")]
        assert not [dump for dump in map(str, dumps) if any(password in dump for password in passwords)]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_settings_are_not_pickled(protocol: int) -> None:
    """A pickle would have the passwords in it as they are, so there is none; copies there are."""
    settings = _with_all_secrets()
    for each in (settings, LockInterceptor(settings), RedisLockStore(settings)):
        with pytest.raises(TypeError) as refused:
            pickle.dumps(each, protocol)
        assert found_in(everything_of(refused.value)) == []
    assert copy.copy(settings) == copy.deepcopy(settings) == settings.model_copy() == settings


BROKEN: list[dict[str, str]] = [
    {"redis_url": f"http://:{MARKERS['pass']}@host"},
    {"redis_url": f"redis://:{MARKERS['pass']}@host:port"},
    {"redis_url": f"redis://:{MARKERS['pass']}@[host", "redis_port": "x"},
    {"redis_url": f"redis://:{SECRET}@host"},
    {"redis_url": f"redis://{USER}:{SECRET}@host"},
    {"redis_url": f"redis://{USER}:12/{MARKERS['pass']}@host"},
    {"redis_url": f"redis://{USER}:12?{MARKERS['pass']}@host"},
    {"redis_url": f"redis://{USER}:12#{MARKERS['pass']}@host"},
    {"redis_url": f"redis://:{MARKERS['pass']}\udcff@host"},
    {"redis_url": f"redis://:{MARKERS['pass']}@host", "redis_sentinel_hosts": "a:1", "redis_cluster": "1"},
    {"redis_password": f"{SECRET}\udcff"},
    {"redis_sentinel_password": f"{SENTINEL_SECRET}\udcff"},
    {"redis_host": f"{USER}:{MARKERS['pass']}@host"},
    {"redis_host": f"redis://:{SECRET}@host"},
    {"redis_port": f"redis://:{SECRET}@host"},
    {"redis_sentinel_hosts": f"{USER}:{MARKERS['pass']}@host:1"},
]
BROKEN_ARGUMENTS: list[dict[str, Any]] = [
    {"redis_password": [SECRET]},
    {"redis_sentinel_password": {"value": SENTINEL_SECRET}},
    {"redis_pasword": SECRET},
]


@pytest.mark.parametrize("values", [*BROKEN, *BROKEN_ARGUMENTS])
def test_no_settings_error_shows_a_secret(values: dict[str, Any]) -> None:
    """Settings that are refused are named without the values that may be secret."""
    with pytest.raises(LockError) as refused:
        LockSettings(**values)
    assert found_in(everything_of(refused.value)) == []


@pytest.mark.parametrize("values", BROKEN)
def test_no_error_about_the_environment_shows_a_secret(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str]
) -> None:
    """The same goes for what is wrong in the environment."""
    for name, value in values.items():
        monkeypatch.setenv(name.upper(), value)
    with pytest.raises(LockError) as refused:
        LockSettings()
    assert found_in(everything_of(refused.value)) == []


def test_the_password_of_these_tests_is_odd() -> None:
    """It has all that means something in URLs."""
    assert set(":/?#[]@%&=+") <= set(ODD)
