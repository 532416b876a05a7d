"""The profiles on a Cluster: who confirms a grant while locks move between nodes."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest
from redis_tools import LEASE, eventually, new_claim, open_store, until_answered
from servers import ClusterSet
from slot_moves import SlotMove, hung, replica_of, wait_for_replicas
from structlog.testing import capture_logs

from lock_interceptor import LockStoreUnavailable
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.store import Claim, Granted

PROFILES = ["primary", "failover", "strict"]
SHORT = timedelta(seconds=0.3)
"""A lease, and so the grace after a move: the new node is another primary than before."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSet]:
    """Three primaries with a replica each."""
    with ClusterSet(replicas=1) as cluster:
        wait_for_replicas(cluster)
        yield cluster


async def granted(store: RedisLockStore, claim: Claim) -> int:
    """Ask until it is granted: after a move the grace goes first."""
    async with asyncio.timeout(20):
        while True:
            answer = await until_answered(lambda: store.acquire(claim, lease=SHORT))
            if isinstance(answer, Granted):
                return answer.token
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("profile", ["failover", "strict"])
@pytest.mark.parametrize("redirection", ["ASK", "MOVED"])
async def test_the_node_that_executes_a_grant_confirms_it(
    cluster: ClusterSet, profile: str, redirection: str
) -> None:
    """When a slot moves, the old node's replicas say nothing of what the new node granted or renewed."""
    values = {"redis_cluster": True, "durability": profile}
    async with open_store(cluster.url, **values) as other, open_store(cluster.url, **values) as store:
        held = new_claim(limit=100)
        await granted(other, held)
        await until_answered(lambda: store.inspect(held.lock))  # learns where the lock is before it moves
        move = SlotMove(cluster, held)
        move.begin()
        if redirection == "MOVED":
            move.finish()
        held, claim = new_claim(held.lock, limit=100), new_claim(held.lock, limit=100)
        await granted(other, held)  # the grace is over
        assert await until_answered(lambda: other.renew(held, lease=LEASE))

        with hung(replica_of(cluster, move.target)), capture_logs() as logs:
            if profile == "strict":
                with pytest.raises(LockStoreUnavailable, match="0 of 1 replicas have confirmed the grant"):
                    await store.acquire(claim, lease=LEASE)
                with pytest.raises(LockStoreUnavailable, match="0 of 1 replicas have confirmed the renewal"):
                    await store.renew(held, lease=LEASE)
            else:
                assert isinstance(await store.acquire(claim, lease=LEASE), Granted)
                assert [entry["event"] for entry in logs] == ["lock.not_replicated"]
        await granted(store, claim)
        assert await until_answered(lambda: store.renew(held, lease=LEASE))
        move.finish()


@pytest.mark.parametrize("profile", PROFILES)
async def test_locks_go_on_while_they_move(cluster: ClusterSet, profile: str) -> None:
    """A lock that moves to and fro is granted, renewed and given back all the while, with rising tokens."""
    async with open_store(cluster.url, redis_cluster=True, durability=profile) as store:
        first = new_claim(limit=100)
        await granted(store, first)
        move, done, tokens = SlotMove(cluster, first), asyncio.Event(), []

        async def work() -> None:
            while not done.is_set():
                claim = new_claim(first.lock, limit=100)
                tokens.append(await granted(store, claim))
                assert await until_answered(lambda: store.renew(claim, lease=LEASE))  # noqa: B023 - awaited
                assert await until_answered(lambda: store.release(claim))  # noqa: B023 - awaited

        working = asyncio.create_task(work())
        for _ in range(2):
            for step in (move.begin, move.finish):
                before = len(tokens)
                await asyncio.to_thread(step)
                await eventually(lambda: len(tokens) > before + 2 or working.done(), "grants")  # noqa: B023
            move.turn_back()
        done.set()
        await working
        assert tokens == sorted(set(tokens))
        assert len(tokens) >= 12
