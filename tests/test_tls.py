"""TLS to Redis: what works, and what each mistake is told as."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from certificates import TlsFiles, tls_files
from redis_tools import new_claim, open_store, settings_for, take
from servers import require_redis

from lock_interceptor import LockConfigurationError
from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.redis_store.tls import check_tls_agrees


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(files: TlsFiles) -> Iterator[RedisServer]:
    """A server that speaks TLS and asks for no certificate of its clients."""
    options = files.server_options(client_certificates=False)
    with RedisServer(*options, binary=require_redis(), tls=True) as server:
        yield server


@pytest.fixture(scope="module")
def strict_server(files: TlsFiles) -> Iterator[RedisServer]:
    """A server that speaks TLS with those that its authority knows."""
    with RedisServer(*files.server_options(), binary=require_redis(), tls=True) as server:
        yield server


async def _check(url: str, **values: Any) -> None:
    async with open_store(url, **values) as store:
        await store.check()
        await take(store, new_claim())


@pytest.mark.parametrize("scheme", ["rediss", "redis"])
async def test_tls_works_with_the_authority_given(server: RedisServer, files: TlsFiles, scheme: str) -> None:
    """A server whose certificate the CA has signed is trusted; REDIS_TLS and rediss:// mean the same."""
    url = f"{scheme}://localhost:{server.port}/0"
    await _check(url, redis_tls=scheme == "redis", redis_tls_ca_file=files.ca)


async def test_tls_works_without_a_url(server: RedisServer, files: TlsFiles) -> None:
    """REDIS_HOST and REDIS_PORT with REDIS_TLS reach the server as well."""
    values = {"redis_host": HOST, "redis_port": server.port, "redis_tls": True}
    async with open_store(settings_for(None, redis_tls_ca_file=files.ca, **values)) as store:
        await store.check()


async def test_tls_works_with_a_client_certificate(strict_server: RedisServer, files: TlsFiles) -> None:
    """A client shows the certificate that it is given."""
    await _check(
        strict_server.url,
        redis_tls_ca_file=files.ca,
        redis_tls_cert_file=files.client_cert,
        redis_tls_key_file=files.client_key,
    )


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_missing_client_certificate_is_named(files: TlsFiles, version: str) -> None:
    """A server that wants a certificate gets none: the error names the variable for it."""
    options = files.server_options(client_certificates=False)
    with RedisServer(*options, binary=require_redis(), tls=True) as server:
        with redis.Redis.from_url(server.url, ssl_ca_certs=str(files.ca)) as admin:
            admin.config_set("tls-protocols", version, "tls-auth-clients", "yes")
        with pytest.raises(LockConfigurationError, match="REDIS_TLS_CERT_FILE"):
            await _check(server.url, redis_tls_ca_file=files.ca)


async def test_a_refusal_that_a_reset_hides_is_found_all_the_same(
    strict_server: RedisServer, files: TlsFiles
) -> None:
    """Where the server's reason got lost on the way, it is asked for again."""
    url, values = strict_server.url, {"redis_tls_ca_file": files.ca}
    for _ in range(10):
        with pytest.raises(LockConfigurationError, match="REDIS_TLS_CERT_FILE"):
            await check_tls_agrees(settings_for(url, **values))
    certificate = {"redis_tls_cert_file": files.client_cert, "redis_tls_key_file": files.client_key}
    await check_tls_agrees(settings_for(url, **values, **certificate))


async def test_a_wrong_authority_is_named(server: RedisServer, files: TlsFiles) -> None:
    """A certificate that the given CA, or no public one, has signed is refused, naming REDIS_TLS_CA_FILE."""
    for authority in (files.other_ca, None):
        with pytest.raises(LockConfigurationError, match=r"certificate verify failed.*REDIS_TLS_CA_FILE"):
            await _check(server.url, redis_tls_ca_file=authority)


async def test_a_wrong_host_name_is_told(server: RedisServer, files: TlsFiles) -> None:
    """A certificate for other names than the one connected to is refused, and the error has the name."""
    with pytest.raises(LockConfigurationError, match=r"127\.1.*not valid for.*REDIS_TLS"):
        await _check(f"rediss://127.1:{server.port}", redis_tls_ca_file=files.ca)


async def test_tls_to_a_plain_server_is_named(valkey: RedisServer) -> None:
    """TLS towards a server without it is a configuration error, not "no answer"."""
    for url, tls in ((f"rediss://{HOST}:{valkey.port}", False), (valkey.url, True)):
        with pytest.raises(
            LockConfigurationError, match=rf"{valkey.port} speaks no TLS: set REDIS_TLS=false"
        ):
            await _check(url, redis_tls=tls, lease=5)


async def test_no_tls_to_a_tls_server_is_named(server: RedisServer, strict_server: RedisServer) -> None:
    """A plain client at a TLS server is told that this is it."""
    for each in (server, strict_server):
        with pytest.raises(LockConfigurationError, match=rf"{each.port} speaks TLS: set REDIS_TLS=true"):
            await _check(f"redis://{HOST}:{each.port}")


async def test_a_file_that_is_no_certificate_is_named(server: RedisServer, tmp_path: Path) -> None:
    """A CA file with something else in it is a configuration error that names the TLS variables."""
    file = tmp_path / "ca.pem"
    file.write_text("not a certificate")
    with pytest.raises(LockConfigurationError, match="REDIS_TLS_CA_FILE"):
        await _check(server.url, redis_tls_ca_file=file)
