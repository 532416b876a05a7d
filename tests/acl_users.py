"""A user with few rights on a server, what it was denied, and a use of all that a store can do."""

from patience import waiting
from redis_tools import eventually, new_claim, stand_in_line, take, until_answered
from servers import command

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.store import Claim, LockId

USER = "few"
PASSWORD = "few-rights"  # noqa: S105 - of servers that live for a moment


def allow(server: RedisServer, *rules: str, database: int = 0) -> str:
    """Make the user anew and return the URL for it."""
    command(server, "ACL", "DELUSER", USER)
    command(server, "ACL", "SETUSER", USER, f">{PASSWORD}", *rules)
    command(server, "ACL", "LOG", "RESET")
    return f"redis://{USER}:{PASSWORD}@{HOST}:{server.port}/{database}"


def denied(server: RedisServer) -> set[str]:
    """What the server has denied the user since it was made."""
    entries = (dict(zip(entry[::2], entry[1::2], strict=True)) for entry in command(server, "ACL", "LOG"))
    return {entry["object"] for entry in entries if entry["username"] == USER} - {"client|setinfo"}


async def use_everything(store: RedisLockStore, lock: LockId | None = None) -> None:
    """Every operation of a store on one lock, and a wake-up."""
    holder = new_claim(lock)
    parked, waiter = new_claim(holder.lock), new_claim(holder.lock)
    await until_answered(store.check)  # "strict" has to hear first how many replicas there are
    await take(store, holder)
    lease = (await store.inspect(holder.lock)).holders[0].lease_left
    assert await store.renew(holder, lease=lease)
    await stand_in_line(store, parked)
    await store.park(parked, keep=lease)
    async with waiting(store, waiter) as granted:
        await eventually(lambda: is_present(store, holder), "a waiter")
        async with store.wakeups(new_claim(holder.lock)) as listening:
            await eventually(listening.is_set, "the subscription")
            await store.release(holder)
            await granted
    assert not await store.release(holder)


async def is_present(store: RedisLockStore, claim: Claim) -> bool:
    """Whether somebody waits for the claim's lock in a worker."""
    return any(waiter.present for waiter in (await store.inspect(claim.lock)).waiters)
