"""How locks are named in Redis: no name, however odd or hostile, reaches another lock's key."""

import itertools
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis.crc import key_slot
from store_cases import RedisBench

from lock_interceptor.redis_store.keys import MAX_PART_BYTES, lock_key, wake_channel
from lock_interceptor.store import LockId, waiter_id

pytest_plugins = ["store_fixtures"]

ODD = [
    "plain",
    "{}",
    "{",
    "}",
    "a}{b",
    ":",
    "::wake",
    "a:b",
    "b",
    "a",
    "\x00",
    "a\x00",
    " ",
    "a b",
    "\r\nDEL x",
    "schön",
    "锁",
    "🔒",
    "~",
    "a~b",
    "%",
    "%3A",
    "%7E",
    "%257E",
    "*",
    "[a-z]?",
    "..",
    "../a",
    "x" * MAX_PART_BYTES,
    "x" * (MAX_PART_BYTES + 1),
    "x" * 1024,
    "x" * 1023 + "y",
    ":" * 1024,
]
# the letters that mean something in keys, and few others, so that what is drawn comes close to colliding
name = st.text("ab:%~{}37EA ", min_size=1, max_size=8) | st.text(min_size=1, max_size=300)
lock_ids = st.builds(LockId, name, name, st.none() | name)
quiet = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=500,
    suppress_health_check=list(HealthCheck),
)


@quiet
@given(lock_ids, lock_ids)
@example(LockId("a", "b:c"), LockId("a", "b", "c"))
@example(LockId("a:b", "c"), LockId("a", "b", "c"))
@example(LockId("a", "%3A"), LockId("a", ":"))
def test_two_locks_have_two_keys(one: LockId, other: LockId) -> None:
    """Equal keys come from equal locks only, and the same goes for waiters in their lines."""
    assert (lock_key("lock", one) == lock_key("lock", other)) == (one == other)
    assert (waiter_id("w", lock=one) == waiter_id("w", lock=other)) == (one == other)


def test_odd_names_have_keys_of_their_own() -> None:
    """All combinations of odd names as name and key differ from each other, and from those without a key."""
    locks = [LockId("app", one, other) for one, other in itertools.product(ODD, [None, *ODD])]
    locks += [LockId(one, other) for one, other in itertools.product(ODD, ODD)]
    assert len({lock_key("lock", lock) for lock in locks}) == len(set(locks))


@pytest.mark.parametrize("long", ["x" * 1024, "ü" * 500])
def test_no_name_can_pose_as_the_short_form_of_a_long_one(long: str) -> None:
    """A name spelled like the cut and digested form of another has a key of its own."""
    key = lock_key("lock", LockId("app", long))
    short = key.removeprefix("lock:1:{app:").removesuffix("}")
    for forged in (short, unquote(short, errors="replace")):
        assert lock_key("lock", LockId("app", forged)) != key


@quiet
@given(lock_ids)
def test_a_key_and_its_channel_have_one_slot(lock: LockId) -> None:
    """The braces of a key are its own, so that its Cluster slot comes from the whole name and no more."""
    key = lock_key("lock", lock)
    tag = key[key.index("{") + 1 : key.index("}")]
    assert key == f"lock:1:{{{tag}}}"
    assert key_slot(wake_channel(key).encode()) == key_slot(key.encode()) == key_slot(tag.encode())


@quiet
@given(lock_ids)
def test_keys_are_printable_and_short(lock: LockId) -> None:
    """A key is printable ASCII without spaces and wildcards, and of bounded length, whatever the name is."""
    key = lock_key("lock", lock)
    assert key.isascii()
    assert key.isprintable()
    assert not set(" *?[]\\") & set(key)
    assert len(key) <= 3 * MAX_PART_BYTES + len("lock:1:{::}")


def test_the_prefix_and_the_layout_are_part_of_the_key() -> None:
    """A readable name stays readable, behind the prefix and the version of the layout."""
    assert lock_key("lock", LockId("shop", "warehouse")) == "lock:1:{shop:warehouse}"
    assert lock_key("mine", LockId("shop", "pick.up", "eu-1")) == "mine:1:{shop:pick.up:eu-1}"
    assert lock_key("lock", LockId("shop", "a b", "ü")) == "lock:1:{shop:a%20b:%C3%BC}"


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
async def test_odd_names_work_and_touch_one_key(redis_bench: RedisBench, odd: str) -> None:
    """A lock with an odd name can be held, waited for and woken, and leaves exactly its own key behind."""
    bench = redis_bench
    bench.lock = LockId(f"odd-{bench.lock.name}", odd, odd)
    holder, waiter = bench.claim("holder"), bench.claim("waiter")
    await bench.hold(holder)
    await bench.wait(waiter)
    async with bench.listening(waiter) as events:
        await bench.release(holder)
        assert await bench.woken(events) == {"waiter"}
    await bench.hold(waiter)
    assert bench.redis("KEYS", f"lock:1:{{{bench.lock.application}:*") == [bench.key]
