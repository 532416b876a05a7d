"""The whole check-up, from the settings to a lock that is taken and given back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from redis.asyncio import Redis
from structlog.testing import capture_logs

from lock_interceptor.errors import LockConfigurationError, LockError, LockStoreUnavailable
from lock_interceptor.lease import clock
from lock_interceptor.redis_store.checkup.cluster import check_cluster
from lock_interceptor.redis_store.checkup.findings import Finding, Report, Server, info_fields, pairs
from lock_interceptor.redis_store.checkup.reach import check_reach, reach
from lock_interceptor.redis_store.checkup.replicas import (
    check_clocks,
    check_isolation,
    check_replicas,
    check_role,
    clock_offset,
    replica_addresses,
)
from lock_interceptor.redis_store.checkup.rights import check_rights
from lock_interceptor.redis_store.checkup.sentinel import check_sentinels
from lock_interceptor.redis_store.checkup.server import (
    check_eviction,
    check_memory,
    check_persistence,
    check_version,
)
from lock_interceptor.redis_store.connection import Connections, address
from lock_interceptor.redis_store.durability import Confirmations
from lock_interceptor.redis_store.store import RedisLockStore
from lock_interceptor.redis_store.tls import check_tls_agrees, endpoints
from lock_interceptor.settings import LockSettings

PATIENCE = 3.0
"""Seconds for an answer."""
_CONFIG = ("appendfsync", "save", "min-replicas-max-lag")


async def examine(settings: LockSettings) -> Report:
    """Check all that can be checked; nothing is raised, and nothing is changed but by a lock of its own."""
    async with contextlib.AsyncExitStack() as stack:
        return await _Checkup(settings, stack).run()


class _Checkup:
    def __init__(self, settings: LockSettings, stack: contextlib.AsyncExitStack) -> None:
        self._settings = settings
        self._stack = stack
        self._report = Report()
        self._confirmations = Confirmations.by_settings(settings, address(settings))
        self._down_after_ms = 0

    async def run(self) -> Report:
        report, settings = self._report, self._settings
        try:
            self._connections = Connections(settings)
        except LockConfigurationError as error:
            self._add(Finding("settings", "problem", str(error), "check REDIS_URL"))
            return report
        self._stack.push_async_callback(self._connections.close)
        self._settings_found()
        reached = await check_reach(settings)
        self._add(*_only_if_all_fail(reached))
        report.reached = any(each.level == "ok" for each in reached)
        if not report.reached or not await self._tls_agrees():
            return report
        try:
            primaries, replicas = await self._find_servers()
        except LockError as error:
            report.reached = isinstance(error, LockConfigurationError)
            self._add(Finding("login" if report.reached else "reach", "problem", str(error)))
            return report
        if primaries:
            await self._look_at(primaries, replicas)
            await self._take_a_lock()
        return report

    def _add(self, *findings: Finding) -> None:
        self._report.findings.extend(findings)

    def _settings_found(self) -> None:
        settings, kind = self._settings, "one server"
        if settings.redis_sentinel_hosts or settings.redis_cluster:
            kind = (
                "a Cluster"
                if settings.redis_cluster
                else f"Sentinel service {settings.redis_sentinel_service}"
            )
        text = f"{address(settings)} ({kind}), application {settings.application_name}"
        self._add(Finding("settings", "ok", f"{text}, LOCK_DURABILITY {self._confirmations.profile}"))
        if settings.disabled:
            message = "IS_LOCKING_DISABLED is set: workers with these settings run everything unlocked"
            self._add(Finding("settings", "warning", message, "unset it"))

    async def _tls_agrees(self) -> bool:
        try:
            await check_tls_agrees(self._settings)
        except LockConfigurationError as error:
            self._add(Finding("tls", "problem", str(error)))
            return False
        return True

    async def _server(self, host: str, port: int) -> Server:
        client = await self._stack.enter_async_context(self._connections.at(host, port))
        return Server(f"{host}:{port}", client, PATIENCE)

    async def _find_servers(self) -> tuple[list[Server], list[Server]]:
        """The primaries, and the replicas that somebody may promote."""
        settings, profile = self._settings, self._confirmations.profile
        if (sentinels := self._connections.sentinels) is not None:
            asked = [
                Server(f"{host}:{port}", client, PATIENCE)
                for (host, port), client in zip(
                    settings.redis_sentinel_hosts, sentinels.sentinel.sentinels, strict=True
                )
            ]
            watched = await check_sentinels(
                asked, settings.redis_sentinel_service, lease=settings.lease, profile=profile
            )
            self._add(*watched.findings)
            self._report.reached = watched.answered
            self._down_after_ms = watched.down_after_ms
            if watched.primary is None:
                return [], []
            found = await reach(*watched.primary, "what Sentinel announces (sentinel announce-ip)")
            self._add(found)
            self._report.reached = found.level == "ok"
            return ([await self._server(*watched.primary)] if self._report.reached else []), []
        if settings.redis_cluster:
            first = await self._server(*endpoints(settings)[0])
            nodes = await check_cluster(first, lease=settings.lease, profile=profile)
            self._add(*nodes.findings)
            primaries = [await self._server(*each) for each in nodes.replicas_of]
            followers = {each for replicas in nodes.replicas_of.values() for each in replicas}
            return primaries, [await self._server(*each) for each in sorted(followers)]
        return [Server(address(settings), cast("Redis", self._connections.client), PATIENCE)], []

    async def _look_at(self, primaries: list[Server], replicas: list[Server]) -> None:
        offsets, answered = [], False
        for server in primaries:
            try:
                replicas = replicas + await self._look_at_primary(server)
                answered = True
                offsets.append((server, await clock_offset(server)))
            except LockError as error:
                refused = isinstance(error, LockConfigurationError)
                answered |= refused
                self._add(Finding("login" if refused else "reach", "problem", str(error), "", server.where))
        self._report.reached = answered
        for server in replicas:
            try:
                self._add(*await check_rights(server, self._settings))
                offsets.append((server, await clock_offset(server)))
            except LockConfigurationError as error:
                remedy = "give all servers the same users: it may be the next primary"
                self._add(server.found("login", "problem", str(error), remedy))
            except LockStoreUnavailable as error:
                message = f"this replica gives no answer here ({error})"
                self._add(
                    server.found("reach", "warning", message, "workers have to reach it after a failover")
                )
        self._add(*check_clocks(offsets, self._settings.lease))

    async def _look_at_primary(self, server: Server) -> list[Server]:
        """All checks of one primary; returns the replicas that Sentinel may promote."""
        settings, confirmations = self._settings, self._confirmations
        self._add(*await check_rights(server, settings))
        info = info_fields(await server.ask_if_allowed("INFO"))
        if info is None:
            message = "version, eviction, memory, persistence and replicas: the user may not use INFO"
            self._add(server.found("info", "unknown", message, "+info lets the doctor see them"))
            return []
        config = pairs(await server.ask_if_allowed("CONFIG", "GET", *_CONFIG))
        self._add(
            *check_version(server, info),
            *check_role(server, info, cluster=settings.redis_cluster),
            *check_eviction(server, info),
            *check_memory(server, info),
            *check_persistence(server, info, config),
        )
        if info.get("role") == "slave":
            return []
        self._add(*check_replicas(server, info, confirmations.profile, replicated=confirmations.replicated))
        if not settings.redis_sentinel_hosts:
            return []
        self._add(*check_isolation(server, info, config, self._down_after_ms))
        return [await self._server(*each) for each in replica_addresses(info)]

    async def _take_a_lock(self) -> None:
        """What a worker with the plugin does at its start; where it cannot work it has been told why."""
        blocked = {"rights", "login", "role", "reach", "version"}
        if any(each.level == "problem" and each.check in blocked for each in self._report.findings):
            return
        store, started = RedisLockStore(self._settings), clock()
        try:
            with capture_logs():
                await store.check()
        except LockError as error:
            self._add(Finding("lock", "problem", str(error)))
        else:
            took = round((clock() - started) * 1000)
            self._add(Finding("lock", "ok", f"a lock was taken, renewed and given back in {took} ms"))
        finally:
            await store.close()


def _only_if_all_fail(reached: Iterable[Finding]) -> Iterable[Finding]:
    """One Sentinel that cannot be reached is no problem while others can."""
    found = list(reached)
    some = any(each.level == "ok" for each in found)
    return [replace(each, level="warning") if some and each.level == "problem" else each for each in found]
