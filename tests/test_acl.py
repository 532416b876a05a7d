"""The least rights are enough: for each profile, on one Redis, behind Sentinel and in a Cluster."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import structlog
from acl_users import PASSWORD, USER, allow, denied, use_everything
from redis_tools import new_claim, open_store, settings_for, take
from rights import IN_SCRIPTS, ON_SENTINEL, PROFILES, least_commands, least_rights, sentinel_rights
from servers import ClusterSet, SentinelSet, info, redis_binaries, require_redis

from lock_interceptor import LockConfigurationError
from lock_interceptor.dev import RedisServer
from lock_interceptor.settings import Durability
from lock_interceptor.store import LockId

ROOT = Path(__file__).parent.parent


@dataclass
class Place:
    """Servers with replicas, and how to get to their locks with few rights."""

    servers: list[RedisServer]
    """Where locks are."""
    allow: Callable[[Durability], dict[str, Any]]
    """Make the user with just the rights that a profile needs; returns the settings for it."""
    guides: tuple[RedisServer, ...] = ()
    """Sentinels."""

    def waits(self) -> int:
        """How often WAIT was called so far."""
        calls = [info(server, "commandstats").get("cmdstat_wait", "calls=0,") for server in self.servers]
        return sum(int(call.split(",")[0].removeprefix("calls=")) for call in calls)


@pytest.fixture(scope="module", params=["valkey", "redis"])
def binary(request: pytest.FixtureRequest) -> Path:
    """A server of each kind."""
    return require_redis() if request.param == "redis" else redis_binaries()["valkey"]


@pytest.fixture(scope="module")
def places(binary: Path) -> Iterator[dict[str, Place]]:
    """Each way to run Redis, with replicas."""
    with ExitStack() as stack:
        sentinels = stack.enter_context(SentinelSet(binary))
        cluster = stack.enter_context(ClusterSet(replicas=1, binary=binary))

        def allow_single(profile: Durability) -> dict[str, Any]:
            return {"url": allow(sentinels.primary, *least_rights(profile=profile, database=False))}

        def allow_sentinel(profile: Durability) -> dict[str, Any]:
            allow_single(profile)
            for sentinel in sentinels.sentinels:
                allow(sentinel, *sentinel_rights())
            login = {"redis_username": USER, "redis_password": PASSWORD}
            login |= {"redis_sentinel_username": USER, "redis_sentinel_password": PASSWORD}
            return {"redis_sentinel_hosts": sentinels.sentinel_hosts, **login}

        def allow_cluster(profile: Durability) -> dict[str, Any]:
            rules = least_rights(profile=profile, cluster=True, database=False)
            urls = [allow(node, *rules) for node in cluster.nodes]
            return {"url": urls[0], "redis_cluster": True}

        yield {
            "single": Place([sentinels.primary], allow_single),
            "sentinel": Place([sentinels.primary], allow_sentinel, tuple(sentinels.sentinels)),
            "cluster": Place(cluster.nodes[:3], allow_cluster),
        }


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kind", ["single", "sentinel", "cluster"])
async def test_the_least_rights_are_enough(places: dict[str, Place], kind: str, profile: Durability) -> None:
    """Under the documented rules everything works, without a warning here or a denial at a server."""
    place = places[kind]
    way, before = place.allow(profile), place.waits()
    with structlog.testing.capture_logs() as events:
        async with open_store(settings_for(way.pop("url", None), durability=profile, **way)) as store:
            for _ in range(6 if kind == "cluster" else 1):  # so that more than one node gets locks
                await use_everything(store)
    assert not [event for event in events if event["log_level"] not in ("debug", "info")]
    assert not {what for server in (*place.servers, *place.guides) for what in denied(server)}
    assert (place.waits() > before) == (profile != "primary")


@pytest.fixture(scope="module")
def server(binary: Path) -> Iterator[RedisServer]:
    """A single server without replicas."""
    with RedisServer(binary=binary) as server:
        yield server


async def test_another_database_needs_one_more_right(server: RedisServer) -> None:
    """SELECT is all that a database other than 0 adds."""
    url = allow(server, *least_rights(profile="primary", database=True), database=3)
    async with open_store(url) as store:
        await use_everything(store)
    assert not denied(server)
    url = allow(server, *least_rights(profile="primary", database=False), database=3)
    async with open_store(url) as store:
        with pytest.raises(LockConfigurationError, match="may not do what a lock needs"):
            await store.check()


async def test_the_prefix_is_part_of_the_rules(server: RedisServer) -> None:
    """Rules for another prefix do for a store with that prefix, and for no other."""
    url = allow(server, *least_rights("app7"))
    async with open_store(url, key_prefix="app7") as store:
        await use_everything(store)
    async with open_store(url) as store:
        with pytest.raises(LockConfigurationError, match="LOCK_KEY_PREFIX"):
            await store.check()


async def test_rules_can_confine_an_application_to_its_own_locks(server: RedisServer) -> None:
    """A pattern with the application's name lets it use its own locks, and keeps it from all others."""
    rules = least_rights()
    patterns = ["~lock:1:{shop:*", "&lock:1:{shop:*"]
    url = allow(server, "on", *patterns, *rules[rules.index("-@all") :])
    async with open_store(url, application_name="shop") as store:
        await use_everything(store, LockId("shop", "warehouse", "north"))
        for other in (LockId("shop2", "warehouse"), LockId("sho", "p:warehouse"), LockId("", "shop:x")):
            with pytest.raises(LockConfigurationError, match="may not"):
                await take(store, new_claim(other))


def test_the_list_has_what_the_scripts_call() -> None:
    """No command of the scripts is missing in the documented list, and none is there in vain."""
    folder = files("lock_interceptor.redis_store") / "scripts"
    texts = [file.read_text("utf-8") for file in folder.iterdir()]
    called = {name.lower() for text in texts for name in re.findall(r"call\('([A-Z]+)'", text)}
    assert called == set(IN_SCRIPTS)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_rules_are_documented(profile: Durability) -> None:
    """SECURITY.md quotes the rules of each profile, and of a user at the Sentinels."""
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    quoted = re.search(rf"# {profile}\nACL SETUSER locks >password (.*?)\n\n", text, re.DOTALL)
    assert quoted is not None
    assert quoted[1].split() == least_rights(profile=profile, database=False)
    assert f"ACL SETUSER locks >password {' '.join(sentinel_rights())}" in text
    everything = least_commands(profile, cluster=True, database=True)
    more = set(everything) - set(least_commands(profile))
    assert all(f"`+{name}`" in text for name in more)
    assert all(f"+{name}" in text for name in ON_SENTINEL)
