"""Passwords appear nowhere: not in logs, errors, what Temporal keeps, or the reprs of our objects."""

import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import structlog
from certificates import TlsFiles, tls_files
from proxy import TcpProxy
from redis_tools import chain, eventually, new_claim, open_store, settings_for
from servers import SentinelSet, command, require_redis

from lock_interceptor import LockError, LockInterceptor, LockSettings, RedisLockStore
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST, free_ports

SECRET = f"hush-{uuid4().hex}"
USER_SECRET = f"shush-{uuid4().hex}"
SENTINEL_SECRET = f"psst-{uuid4().hex}"
SECRETS = (SECRET, USER_SECRET, SENTINEL_SECRET)


@dataclass
class Servers:
    """What there is to fail at."""

    guarded: RedisServer
    silent: TcpProxy
    encrypted: RedisServer
    sentinels: SentinelSet
    files: TlsFiles


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers with passwords that none of the settings below have."""
    files = tls_files(tmp_path_factory.mktemp("tls"))
    options = [*files.server_options(), "--requirepass", "another"]
    with (
        RedisServer("--requirepass", "another") as guarded,
        TcpProxy(guarded.port) as silent,
        RedisServer(*options, binary=require_redis(), tls=True) as encrypted,
        SentinelSet(password="another", sentinel_password=SENTINEL_SECRET) as sentinels,  # noqa: S106
    ):
        silent.black_hole()
        yield Servers(guarded, silent, encrypted, sentinels, files)


Configuration = Callable[[Servers], dict[str, Any]]


def _url(port: int, *, user: str = "", password: str = SECRET, more: str = "") -> dict[str, Any]:
    return {"url": f"redis://{user}:{password}@{HOST}:{port}{more}"}


FAILING: dict[str, Configuration] = {
    "wrong password in the URL": lambda on: _url(on.guarded.port),
    "wrong user in the URL": lambda on: _url(on.guarded.port, user="ada"),
    "password in the query": lambda on: {"url": f"{on.guarded.url}?password={SECRET}"},
    "wrong password on its own": lambda on: {"url": on.guarded.url, "redis_password": SECRET},
    "two passwords": lambda on: {**_url(on.guarded.port), "redis_password": USER_SECRET},
    "host and port": lambda on: {
        "redis_host": HOST,
        "redis_port": on.guarded.port,
        "redis_username": "ada",
        "redis_password": SECRET,
    },
    "no right": lambda on: _url(on.guarded.port, user="few", password=USER_SECRET),
    "nonsense in the URL": lambda on: _url(on.guarded.port, more="?tiemout=1"),
    "nobody listens": lambda _: _url(free_ports(1)[0]),
    "unknown host": lambda _: {"url": f"redis://:{SECRET}@nowhere.invalid:6379"},
    "silence": lambda on: _url(on.silent.port),
    "no TLS at a TLS server": lambda on: _url(on.encrypted.port),
    "TLS at a plain server": lambda on: {**_url(on.guarded.port), "redis_tls": True},
    "wrong authority": lambda on: {
        **_url(on.encrypted.port),
        "redis_tls": True,
        "redis_tls_ca_file": on.files.other_ca,
    },
    "no client certificate": lambda on: {
        **_url(on.encrypted.port),
        "redis_tls": True,
        "redis_tls_ca_file": on.files.ca,
    },
    "wrong Sentinel password": lambda on: {
        "redis_sentinel_hosts": on.sentinels.sentinel_hosts,
        "redis_sentinel_password": SECRET,
        "redis_password": USER_SECRET,
    },
    "right Sentinel password": lambda on: {
        "redis_sentinel_hosts": on.sentinels.sentinel_hosts,
        "redis_sentinel_password": SENTINEL_SECRET,
        "redis_password": SECRET,
    },
    "no Sentinel": lambda _: {
        "redis_sentinel_hosts": f"{HOST}:{free_ports(1)[0]}",
        "redis_sentinel_username": "ada",
        "redis_sentinel_password": SENTINEL_SECRET,
        "redis_password": SECRET,
    },
    "no Cluster": lambda on: {**_url(on.guarded.port), "redis_cluster": True},
    "Cluster out of reach": lambda _: {**_url(free_ports(1)[0]), "redis_cluster": True},
}


@pytest.mark.parametrize("name", FAILING)
async def test_no_failure_shows_a_password(
    servers: Servers, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong on the way to Redis, nothing that is raised or logged has a password in it."""
    if name == "no right":
        rules = ("on", f">{USER_SECRET}", "~lock:*", "+eval", "+evalsha")
        command(servers.guarded, "ACL", "SETUSER", "few", *rules, password="another")  # noqa: S106
    values = FAILING[name](servers)
    caplog.set_level(logging.DEBUG)
    shown = []
    with structlog.testing.capture_logs() as events:
        settings = settings_for(values.pop("url", None), lease=2, **values)
        interceptor = LockInterceptor(settings)
        store = RedisLockStore(settings)
        shown += [repr(settings), str(settings), repr(store), repr(interceptor), str(settings.model_dump())]
        async with open_store(settings) as store:
            with pytest.raises(LockError) as failed:
                await store.check()
            for error in chain(failed.value):
                shown += [str(error), repr(error), str(error.args), *traceback.format_exception(error)]
            if name != "nonsense in the URL":
                async with store.wakeups(new_claim()):
                    await eventually(lambda: _subscriber_failed(events), "the subscriber's own error")
    shown += [str(event) for event in events]
    shown += [record.getMessage() + str(record.exc_info) for record in caplog.records]
    assert not [text for text in shown if any(secret in text for secret in SECRETS)]


def _subscriber_failed(events: list[Any]) -> bool:
    return any(event["event"] == "lock.wakeups_interrupted" for event in events)


def test_no_settings_error_shows_a_password() -> None:
    """Settings that are refused are named without the values that may be secret."""
    broken: list[dict[str, Any]] = [
        {"redis_url": f"http://:{SECRET}@host"},
        {"redis_url": f"redis://:{SECRET}@host:port"},
        {"redis_url": f"redis://:{SECRET}@[host", "redis_port": "x"},
        {"redis_url": f"redis://:{SECRET}@host", "redis_sentinel_hosts": "a:1", "redis_cluster": True},
        {"redis_password": [SECRET]},
        {"redis_pasword": SECRET},
    ]
    for values in broken:
        with pytest.raises(LockError) as failed:
            LockSettings(**values)
        for error in chain(failed.value):
            assert SECRET not in "".join([str(error), repr(error), *traceback.format_exception(error)])
