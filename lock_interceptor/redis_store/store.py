"""`RedisLockStore`: the lock store on Redis."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

from redis.exceptions import NoScriptError

from lock_interceptor import metrics
from lock_interceptor.errors import LockStoreUnavailable
from lock_interceptor.lease import clock
from lock_interceptor.redis_store import scripts
from lock_interceptor.redis_store.connection import address
from lock_interceptor.redis_store.durability import Confirmations, Kind
from lock_interceptor.redis_store.errors import translated
from lock_interceptor.redis_store.keys import lock_key, wake_channel
from lock_interceptor.redis_store.loops import Loops
from lock_interceptor.redis_store.records import decode_holder, decode_state, duration, encode_party
from lock_interceptor.redis_store.sending import Reply, bare_primaries, send
from lock_interceptor.redis_store.server_clocks import ServerClocks
from lock_interceptor.redis_store.tls import check_tls_agrees
from lock_interceptor.settings import LockSettings
from lock_interceptor.store import (
    Claim,
    Granted,
    LockId,
    LockState,
    Queueing,
    Waiting,
)

CHECK_LEASE = timedelta(seconds=2)
_marks = itertools.count()


class RedisLockStore:
    """A `LockStore` on one Redis server, a Sentinel set or a Cluster; ``scripts/common.lua`` has the data."""

    def __init__(self, settings: LockSettings | None = None) -> None:
        """Create a store; nothing is connected before the first call.

        Args:
            settings: how to reach Redis, by default from the environment.

        Raises:
            LockConfigurationError: the environment holds invalid settings.
        """
        self._settings = settings or LockSettings()
        self._address = address(self._settings)
        self._loops = Loops(self._settings)
        self._confirmations = Confirmations.by_settings(self._settings, self._address)
        self._clocks = ServerClocks()
        self._answered = False

    def __repr__(self) -> str:
        return f"<RedisLockStore {self._address}>"

    async def acquire(
        self, claim: Claim, *, lease: timedelta, queueing: Queueing | None = None
    ) -> Granted | Waiting:
        """See `LockStore.acquire`."""
        wakeups, channel = self._loops.here().wakeups, self._channel(claim.lock)
        calls = wakeups.calls(channel)
        reply = await self._run(
            "acquire",
            claim.lock,
            claim.owner,
            claim.waiter,
            claim.limit,
            _ms(lease),
            min(max(claim.priority, 1), 9),
            _presence_ms(queueing),
            _ms(queueing.keep) if queueing else 0,
            _ms(claim.usual_lease),
            encode_party(claim.party),
            claim.party.attempt,
            kind="grant",
        )
        answer = reply.answer
        reply.replicas.heard(answer[-1])
        if answer[-1] < 0:
            self._confirmations.info_forbidden()
        if answer[0] == 1:
            reply.replicas.check("grant", reply.confirmed)
            if reply.replicas.short:
                claim.metrics.count(metrics.NOT_REPLICATED)
            return Granted(token=answer[1], slot=answer[2], ticket=answer[3])
        _, rank, ahead, held, mean, expiry, grace, now, holders, ticket, own, own_expiry, _ = answer
        wakeups.told(channel, claim.waiter, rank + 1, calls)
        return Waiting(
            place=rank + 1,
            ahead=ahead,
            held=held,
            mean_hold=duration(mean),
            next_expiry=duration(expiry),
            settling=duration(grace or -1),
            holders=tuple(decode_holder(holder, now) for holder in holders),
            ticket=ticket,
            own=own,
            own_expiry=duration(own_expiry),
        )

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """See `LockStore.renew`."""
        sent = clock()
        reply = await self._run("renew", claim.lock, claim.owner, _ms(lease), kind="renewal")
        renewed, server_ms = reply.answer
        if self._clocks.heard(reply.replicas.where, server_ms, sent):
            claim.metrics.count(metrics.CLOCK_STEPS)
        if renewed:
            reply.replicas.check("renewal", reply.confirmed)
        return bool(renewed)

    async def release(self, claim: Claim) -> bool:
        """See `LockStore.release`."""
        here = self._loops.here()
        shared = here.connections.shared  # on others the next one might ask before the release is there
        if shared is not None and here.wakeups.call_next(self._channel(claim.lock)):
            shared.gather()
        who = (claim.owner, claim.waiter, claim.limit)
        reply = await self._run("release", claim.lock, *who, claim.party.attempt)
        return bool(reply.answer)

    async def park(self, claim: Claim, *, ticket: int = 0, keep: timedelta) -> None:
        """See `LockStore.park`."""
        await self._run(
            "park",
            claim.lock,
            claim.owner,
            claim.waiter,
            claim.limit,
            ticket,
            _ms(keep),
            encode_party(claim.party),
            claim.party.attempt,
        )

    async def inspect(self, lock: LockId, *, waiters: int = 100) -> LockState:
        """See `LockStore.inspect`."""
        return decode_state((await self._run("inspect", lock, waiters)).answer)

    @asynccontextmanager
    async def wakeups(self, claim: Claim) -> AsyncIterator[asyncio.Event]:
        """See `LockStore.wakeups`."""
        async with self._loops.here().wakeups.listen(self._channel(claim.lock), claim.waiter) as event:
            yield event

    async def check(self) -> None:
        """See `LockStore.check`."""
        # by doing all of it, since rights are given by command, key and channel; users' names are never empty
        lock, owner = LockId(self._settings.application_name, ""), secrets.token_hex(16)
        claim = Claim(lock=lock, owner=owner, waiter=owner, limit=1_000_000)
        if self._confirmations.profile == "strict":
            connections = self._loops.here().connections
            with translated(self._address, worked_before=self._answered):
                async with connections.use():
                    self._confirmations.refuse(await bare_primaries(connections))
        try:
            await self.acquire(claim, lease=CHECK_LEASE)
        except LockStoreUnavailable:
            self._confirmations.refuse(self._confirmations.bare_primaries())
            raise
        await self.renew(claim, lease=CHECK_LEASE)
        await self.release(claim)
        with translated(self._address):
            await self._loops.here().wakeups.try_out(self._channel(lock))

    async def close(self) -> None:
        """See `LockStore.close`."""
        await self._loops.close_here()

    def _channel(self, lock: LockId) -> str:
        return wake_channel(lock_key(self._settings.key_prefix, lock))

    async def _run(self, name: str, lock: LockId, *args: str | int, kind: Kind = "other") -> Reply:
        """Run a script, and learn how many replicas have confirmed what it did."""
        script, mark = scripts.marked(scripts.load(name)), next(_marks)
        key = lock_key(self._settings.key_prefix, lock)
        here = self._loops.here()
        try:
            with translated(self._address, worked_before=self._answered):
                run = partial(
                    send,
                    here.connections,
                    key,
                    kind=kind,
                    confirmations=self._confirmations,
                    ahead=name == "renew",
                )
                try:
                    reply = await run(("EVALSHA", script.digest, 1, key, mark, *args), mark)
                except NoScriptError:
                    reply = await run(("EVAL", script.text, 1, key, mark, *args), mark)
        except LockStoreUnavailable:
            if not self._answered and not here.looking_at_tls:
                here.looking_at_tls = True  # once is enough, however many ask
                try:
                    await check_tls_agrees(self._settings)
                finally:
                    here.looking_at_tls = False
            raise
        self._answered = True
        return reply


def _presence_ms(queueing: Queueing | None) -> int:
    if queueing is None:
        return 0
    return -1 if queueing.presence is None else _ms(queueing.presence)


def _ms(time: timedelta) -> int:
    return max(round(time.total_seconds() * 1000), 1)
