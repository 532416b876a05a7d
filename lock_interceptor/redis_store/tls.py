"""Tells "TLS on one side only" from "no answer", which redis-py reports alike."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from urllib.parse import urlsplit

from lock_interceptor.errors import LockConfigurationError
from lock_interceptor.redis_store.connection import request_timeout
from lock_interceptor.settings import LockSettings


async def check_tls_agrees(settings: LockSettings) -> None:
    """Look at how the server answers.

    Raises:
        LockConfigurationError: it speaks TLS and the settings do not, or the other way round.
    """
    url = settings.redis_url.get_secret_value() if settings.redis_url is not None else ""
    if url.startswith("unix:"):
        return
    parts = urlsplit(url)
    hosts = list(settings.redis_sentinel_hosts) or [
        (parts.hostname or "localhost", parts.port or 6379)
        if url
        else (settings.redis_host, settings.redis_port)
    ]
    expects_tls = settings.redis_tls or url.startswith("rediss:")
    for host, port in hosts:
        speaks_tls = await _speaks_tls(host, port, request_timeout(settings))
        if speaks_tls is not None and speaks_tls != expects_tls:
            found, remedy = (
                ("TLS", "REDIS_TLS=true or rediss:// in REDIS_URL")
                if speaks_tls
                else ("no TLS", "REDIS_TLS=false or redis:// in REDIS_URL")
            )
            raise LockConfigurationError(f"the Redis server at {host}:{port} speaks {found}: set {remedy}")


async def _speaks_tls(host: str, port: int, timeout: float) -> bool | None:
    """Whether the server speaks TLS; None if that cannot be told."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: only whether a handshake begins is of interest
    for tls in (None, context):
        with contextlib.suppress(OSError, TimeoutError, ValueError):  # SSLError is an OSError
            async with asyncio.timeout(timeout):
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
