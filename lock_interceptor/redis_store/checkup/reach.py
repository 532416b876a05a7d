"""Whether the servers that the settings name can be reached at all."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

from lock_interceptor.redis_store.checkup.findings import Finding
from lock_interceptor.redis_store.tls import endpoints
from lock_interceptor.settings import LockSettings

PATIENCE = 3.0
"""Seconds for a connection: more than a worker waits, to tell slow from dead."""


async def check_reach(settings: LockSettings) -> list[Finding]:
    """One finding for each address in the settings."""
    url = settings.redis_url.get_secret_value() if settings.redis_url is not None else ""
    if url.startswith("unix:"):
        return [await _reach_socket(urlsplit(url).path)]
    variable = (
        "REDIS_SENTINEL_HOSTS"
        if settings.redis_sentinel_hosts
        else "REDIS_URL"
        if url
        else "REDIS_HOST and REDIS_PORT"
    )
    looks = (reach(host, port, variable) for host, port in endpoints(settings))
    return list(await asyncio.gather(*looks))


async def reach(host: str, port: int, variable: str) -> Finding:
    """Resolve and connect; `variable` is where the address comes from."""
    where = f"{host}:{port}"
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(host, port)
    except socket.gaierror as error:
        return Finding(
            "reach",
            "problem",
            f"the name {host} does not resolve ({error.strerror})",
            f"check {variable}, and DNS from this machine",
            where,
        )
    except ConnectionRefusedError:
        return Finding(
            "reach",
            "problem",
            "the connection is refused: nobody listens there",
            f"check {variable}, that the server runs, and to which addresses it is bound",
            where,
        )
    except TimeoutError:
        return Finding(
            "reach",
            "problem",
            f"no connection within {PATIENCE:g} s",
            f"check {variable}, firewalls, network policies and security groups",
            where,
        )
    except (OSError, ValueError) as error:
        return Finding("reach", "problem", f"no connection: {error}", f"check {variable}", where)
    writer.transport.abort()
    return Finding("reach", "ok", "accepts connections", where=where)


async def _reach_socket(path: str) -> Finding:
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_unix_connection(path)
    except (OSError, TimeoutError, ValueError) as error:
        return Finding(
            "reach",
            "problem",
            f"no connection to the socket: {getattr(error, 'strerror', None) or error}",
            "check REDIS_URL, that the server runs, and who may use the socket",
            path,
        )
    writer.transport.abort()
    return Finding("reach", "ok", "accepts connections", where=path)
