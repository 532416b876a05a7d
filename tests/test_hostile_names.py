"""Whoever may choose names, keys and workflow ids reaches nothing but the lock that they name."""

import re
from urllib.parse import quote
from uuid import uuid4

from activities_under_test import Call, CallActivity
from hostile_text import anything, on_servers, quiet
from hypothesis import example, given
from hypothesis import strategies as st
from redis.crc import key_slot
from stage import Stage, until
from store_cases import RedisBench
from temporalio import activity
from temporalio.client import Client

from lock_interceptor import needs_lock
from lock_interceptor.redis_store.keys import lock_key, wake_channel
from lock_interceptor.store import LockId, Party

pytest_plugins = ["store_fixtures"]

lock_ids = st.builds(LockId, anything, anything, st.none() | anything)
parties = st.builds(
    Party, workflow=anything, workflow_type=anything, activity=anything, activity_id=anything, worker=anything
)


@quiet
@given(lock_ids, lock_ids)
@example(LockId("a", "é"), LockId("a", "e\u0301"))
@example(LockId("a", "b:c"), LockId("a", "b", "c"))
@example(LockId("a", "b"), LockId("a", "b", ":wake"))
@example(LockId("a", "y" * 10_000), LockId("a", "y" * 9_999))
def test_two_locks_share_nothing(one: LockId, other: LockId) -> None:
    """Neither key, nor slot tag, nor channel of a lock is another's, and no channel is a key."""
    keys = {lock_key("lock", lock) for lock in (one, other)}
    channels = {wake_channel(key) for key in keys}
    tags = {key[key.index("{") + 1 : key.index("}")] for key in keys}
    assert len(keys) == len(channels) == len(tags) == len({one, other})
    assert not keys & channels
    for key in keys:
        assert key.count("{") == key.count("}") == 1
        assert key_slot(key.encode()) == key_slot(wake_channel(key).encode())


@quiet
@given(lock_ids, anything)
def test_an_application_is_told_by_the_beginning_of_a_key(lock: LockId, application: str) -> None:
    """A pattern with an application's name fits its own locks and no others, so rights can confine it."""
    if len(quote(application, safe="")) <= 200:  # longer ones end in a digest, and have a pattern with that
        begin = f"lock:1:{{{quote(application, safe='').replace('~', '%7E')}:"
        assert lock_key("lock", lock).startswith(begin) == (lock.application == application)
    assert not set("*?[]\\^ ") & set(lock_key("lock", lock))


MEMBER = re.compile(
    r"[htsqpkcw][\w-]+|i[\w-]+(?::[\w-]+,\d+=\d+)*\|\{[ -~]*\}|#[tqnLglm]|@[0-9a-f]{40}", re.ASCII
)


@on_servers
@given(lock=lock_ids, party=parties, other_party=parties)
async def test_what_people_read_is_no_way_into_a_lock(
    redis_bench: RedisBench, lock: LockId, party: Party, other_party: Party
) -> None:
    """Holders and waiters with hostile ids have members like all others, are shown, and leave no trace."""
    bench, application = redis_bench, f"{uuid4()}{lock.application}"
    neighbours = bench.lock = LockId(application, lock.name, f"{lock.key}+")
    await bench.hold(bench.claim("neighbour", party=other_party))
    untouched = bench.members()
    bench.lock = LockId(application, lock.name, lock.key)
    holder, waiter = bench.claim("holder", party=party), bench.claim("waiter", party=other_party)
    parked = bench.claim("parked", party=party)
    await bench.hold(holder)
    await bench.wait(waiter)
    await bench.wait(parked)
    await bench.park(parked)
    assert await bench.renew(holder)

    assert not [member for member in bench.members() if not MEMBER.fullmatch(member)]
    assert sum(member[0] == "i" for member in bench.members()) == 3
    state = await bench.look()
    assert [(each.owner, each.slot) for each in state.holders] == [("holder", 0)]
    assert [each.waiter for each in state.waiters] == ["for-waiter", "for-parked"]
    shown = [each.party for each in (*state.holders, *state.waiters)]
    for seen, told in zip(shown, (party, other_party, party), strict=True):
        # long ones are cut, and none is anything else than it was
        assert all(str(told.as_dict()[name]).startswith(str(text)) for name, text in seen.as_dict().items())
        assert seen.workflow or not told.workflow

    for claim in (holder, waiter, parked):
        await bench.release(claim)
    assert {member[0] for member in bench.members()} <= {"#", "@"}
    bench.redis("DEL", bench.key)
    bench.lock = neighbours
    assert bench.members() == untouched
    bench.redis("DEL", bench.key)


@on_servers
@given(lock=lock_ids)
async def test_a_wake_up_finds_its_own_lock_only(redis_bench: RedisBench, lock: LockId) -> None:
    """Two locks with hostile names, of which one poses as the channel of the other, wake their own."""
    bench = redis_bench
    application = f"{uuid4()}{lock.application}"
    locks = [
        LockId(application, lock.name),
        LockId(application, lock.name, f"{lock.key}:wake"),
    ]  # a key in the shape of a channel
    claims = []
    for bench.lock in locks:
        holder, waiter = bench.claim("holder"), bench.claim("waiter")
        await bench.hold(holder)
        await bench.wait(waiter)
        claims.append((holder, waiter))
    (first_holder, first), (second_holder, second) = claims
    async with bench.listening(first) as events, bench.listening(second) as other_events:
        await bench.release(first_holder)
        assert await bench.woken(events) == {"waiter"}
        assert await bench.woken(other_events) == set()
        await bench.release(second_holder)
        assert await bench.woken(other_events) == {"waiter"}
    for bench.lock in locks:
        bench.redis("DEL", bench.key)


HOSTILE_IDS = [
    "order|i1|{}\n#t",
    "\x1b[2J\x1b]0;owned\x07\r",
    "h1\nq2\nk3:wake",
    "{lock}:%7E\u202etxet",
    '","worker":"forged',
]


@activity.defn
@needs_lock(lock_name="pick\n\x1b[31m|#t", key=lambda text: text)
async def pick(text: str) -> str:
    return text


async def test_hostile_workflow_ids_and_keys_work_in_a_worker(stage: Stage, client: Client) -> None:
    """Workflows with such ids wait, are shown without control characters, and get their lock in turn."""
    name, key = "pick\n\x1b[31m|#t", "\x00{}:\n"
    async with stage.worker(pick):
        async with stage.somebody_else(name, key):
            handles = [
                await client.start_workflow(
                    CallActivity.run,
                    Call("pick", [key], heartbeat=5),
                    id=f"{uuid4()}{hostile_id}",
                    task_queue=stage.task_queue,
                )
                for hostile_id in HOSTILE_IDS
            ]

            async def all_wait() -> bool:
                state = await stage.state(name, key)
                return len([each for each in state.waiters if each.present]) == len(HOSTILE_IDS)

            await until(all_wait, "all of them waiting")
            waiters = (await stage.state(name, key)).waiters
            assert {each.party.workflow for each in waiters} == {
                Party(workflow=handle.id).workflow for handle in handles
            }
        assert [await handle.result() for handle in handles] == [key] * len(handles)
