"""The line over failovers on demand: from one server to another and back."""

import asyncio
from datetime import timedelta

from redis_tools import QUEUEING, eventually, new_claim, open_store, until_answered
from virtual_ip import pair

from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.store import Claim, Granted, Waiting

SHORT = timedelta(seconds=1)
LONG = timedelta(seconds=60)


async def ask(store: RedisLockStore, claim: Claim) -> Granted | Waiting:
    """Stand in line, or ask again."""
    return await until_answered(lambda: store.acquire(claim, lease=SHORT, queueing=QUEUEING))


async def is_granted(store: RedisLockStore, claim: Claim) -> bool:
    """Ask, and tell whether it is granted."""
    return isinstance(await ask(store, claim), Granted)


async def test_there_and_back_again() -> None:
    """From A to B and back to A: one grace each, places in line stay, holders renew, and tokens rise."""
    with pair() as servers:
        async with open_store(servers.url, durability="failover", lease=5) as store:
            held = new_claim(limit=2)
            tokens = [(await ask(store, held)).token]
            assert await store.renew(held, lease=LONG)
            for _ in range(2):
                passing, first, second = (new_claim(held.lock, limit=2) for _ in range(3))
                tokens.append((await ask(store, passing)).token)
                assert await store.renew(passing, lease=LONG)
                assert [(await ask(store, claim)).place for claim in (first, second)] == [1, 2]

                await asyncio.to_thread(servers.hand_over)
                answer = await ask(store, second)
                assert timedelta(0) < answer.settling <= SHORT
                assert (answer.place, answer.held) == (2, 2)
                assert await until_answered(lambda: store.renew(held, lease=LONG))
                assert await until_answered(lambda: store.release(passing))  # noqa: B023 - awaited here
                assert isinstance(await ask(store, first), Waiting), "free, but not yet"

                async def settled() -> bool:
                    return (await ask(store, second)).settling is None  # noqa: B023 - awaited here

                await eventually(settled, "the end of the grace")
                tokens.append((await ask(store, first)).token)
                assert await until_answered(lambda: store.release(first))  # noqa: B023 - awaited here
                tokens.append((await ask(store, second)).token)
                assert await until_answered(lambda: store.release(second))  # noqa: B023 - awaited here
            assert tokens == sorted(set(tokens))
            assert len(tokens) == 7
