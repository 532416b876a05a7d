"""Tells TLS that does not fit from "no answer", where redis-py reports them alike."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from urllib.parse import urlsplit

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.settings import LockSettings

PATIENCE = 1.0
"""Seconds for an answer to a first word. A look is rare, and may last longer than a request."""
MAX_SILENCE = 0.5
"""Seconds: a server that has sent no error for so long accepts the connection."""


async def check_tls_agrees(settings: LockSettings) -> None:
    """Look at how the server answers.

    Raises:
        LockConfigurationError: it speaks TLS and the settings do not, or the other way round; its certificate
            is not to be trusted; or it does not take the client's.
    """
    url = settings.redis_url.get_secret_value() if settings.redis_url is not None else ""
    if url.startswith("unix:"):
        return
    hosts = endpoints(settings)
    expects_tls = settings.redis_tls or url.startswith("rediss:")
    # all at once: each of them may be hung
    looks = (_check_server(host, port, settings, expects_tls=expects_tls) for host, port in hosts)
    for error in await asyncio.gather(*looks, return_exceptions=True):
        if error is not None:
            raise error


def endpoints(settings: LockSettings) -> list[tuple[str, int]]:
    """Host and port of each server that the settings name: the Sentinels or the one to begin with."""
    if settings.redis_sentinel_hosts:
        return list(settings.redis_sentinel_hosts)
    if settings.redis_url is None:
        return [(settings.redis_host, settings.redis_port)]
    parts = urlsplit(settings.redis_url.get_secret_value())
    return [(parts.hostname or "localhost", parts.port or 6379)]


async def _check_server(host: str, port: int, settings: LockSettings, *, expects_tls: bool) -> None:
    """Look at one server; raises as above."""
    speaks_tls = await _speaks_tls(host, port)
    if speaks_tls is not None and speaks_tls != expects_tls:
        found, remedy = (
            ("TLS", "REDIS_TLS=true or rediss:// in REDIS_URL")
            if speaks_tls
            else ("no TLS", "REDIS_TLS=false or redis:// in REDIS_URL")
        )
        raise LockConfigurationError(f"the Redis server at {host}:{port} speaks {found}: set {remedy}")
    if speaks_tls and (problem := await _problem(host, port, settings)):
        if isinstance(problem, ssl.SSLCertVerificationError):
            raise LockConfigurationError(
                f"TLS to Redis at {host}:{port} fails ({problem}): check REDIS_TLS_CA_FILE, and that the "
                "certificate is valid and for this host"
            )
        raise LockConfigurationError(
            f"the Redis server at {host}:{port} refuses the client's certificate, or the lack of one "
            f"({problem}): check REDIS_TLS_CERT_FILE and REDIS_TLS_KEY_FILE"
        )


async def _speaks_tls(host: str, port: int) -> bool | None:
    """Whether the server speaks TLS; None if that cannot be told."""
    for tls in (None, _trusting_context()):
        with contextlib.suppress(OSError, TimeoutError, ValueError):  # SSLError is an OSError
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection(host, port, ssl=tls)
                try:
                    if tls is not None:
                        return True
                    writer.write(b"PING\r\n")
                    if (await reader.read(1)) in (b"+", b"-"):
                        return False
                finally:
                    writer.transport.abort()
    return None


async def _problem(host: str, port: int, settings: LockSettings) -> ssl.SSLError | None:
    """Shake hands like a client and keep silent, to hear what either side has against the other.

    In TLS 1.3 the server says so after the handshake. Whoever has sent something by then may get a reset
    instead.
    """
    context = ssl.create_default_context()
    try:
        if settings.redis_tls_ca_file is not None:
            context.load_verify_locations(settings.redis_tls_ca_file)
        if settings.redis_tls_cert_file is not None:
            context.load_cert_chain(settings.redis_tls_cert_file, settings.redis_tls_key_file)
        async with asyncio.timeout(MAX_SILENCE):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                await reader.read(1)
            finally:
                writer.transport.abort()
    except ssl.SSLError as error:
        cut = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)  # which may happen to anybody
        return None if cut else error
    except (OSError, TimeoutError):
        pass
    return None


def _trusting_context() -> ssl.SSLContext:
    """For looking only: nothing is sent, and nothing that is received is used."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
