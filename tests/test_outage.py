"""Redis absent, going away and coming back, under real workers: they wait, and nothing needs a restart."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import structlog
from activities_under_test import in_coroutine
from proxy import TcpProxy
from redis_tools import new_claim, open_store, settings_for, take, until_answered
from servers import command
from stage import Stage, until
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError

from lock_interceptor import LockConfigurationError, LockStoreUnavailable
from lock_interceptor.dev import RedisServer, TemporalServer
from lock_interceptor.dev.process import HOST
from lock_interceptor.redis_store import RedisLockStore
from lock_interceptor.store import Claim, Granted

ACTIVITY = "in_coroutine"
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
PASSWORD = "right"  # noqa: S105 - of servers that live for a moment

Events = list[dict[str, object]]


@pytest.fixture
def events() -> Iterator[Events]:
    """What was logged so far."""
    with structlog.testing.capture_logs() as events:
        yield events


@dataclass
class Scene:
    """Makes stages on servers that are not there all the time."""

    temporal: TemporalServer
    client: Client
    task_queue: str
    directory: Path

    def on(self, server: RedisServer, url: str | None = None, **values: object) -> Stage:
        """A stage whose workers reach the server by `url`."""
        values = {"retry_interval": 0.5, "lease": 5, **values}
        settings = settings_for(url or server.url, **values)
        store = RedisLockStore(settings)
        return Stage(self.temporal, server, self.client, self.task_queue, self.directory, settings, store)


@pytest.fixture
def scene(temporal_server: TemporalServer, client: Client, task_queue: str, tmp_path: Path) -> Scene:
    return Scene(temporal_server, client, task_queue, tmp_path)


def _has(events: Events, name: str) -> Callable[[], bool]:
    return lambda: any(event["event"] == name for event in events)


async def test_a_worker_may_start_before_redis(scene: Scene, events: Events) -> None:
    """Activities that come while Redis is absent wait for it, and all finish in their first attempt."""
    with RedisServer() as server:
        server.stop()
        stage = scene.on(server)
        async with stage.worker(in_coroutine):
            running = [await stage.start(ACTIVITY, stage.play(name=f"n{i}-")) for i in range(3)]
            await until(_has(events, "lock.store_unavailable"), "a request without an answer")
            server.start()
            tokens = await asyncio.gather(*(handle.result() for handle in running))
            assert len(set(tokens)) == 3
        assert not [event for event in events if event["event"] == "lock.lost"]
        await stage.store.close()


async def test_an_outage_shorter_than_the_lease_loses_nothing(scene: Scene, events: Events) -> None:
    """Redis dies and comes back with its data: the holder goes on, and those who wait get their turn."""
    with RedisServer(*DURABLE) as server:
        stage = scene.on(server)
        async with stage.worker(in_coroutine):
            holding = await stage.start(ACTIVITY, stage.play(name="first-", waits=True))
            await stage.saw("first-began1")
            following = [await stage.start(ACTIVITY, stage.play(name=f"n{i}-")) for i in range(2)]
            await stage.until_waiting(2)
            server.kill()
            await until(_has(events, "lock.doubtful"), "a renewal without an answer")
            server.start()
            await until(_has(events, "lock.recovered"), "a renewal that got through")
            stage.cue("first-go")
            results = await asyncio.gather(*(handle.result() for handle in (holding, *following)))
            assert len(set(results)) == 3
        assert not [event for event in events if event["event"] == "lock.lost"]
        await stage.store.close()


async def test_an_outage_longer_than_the_lease_stops_the_body_first(scene: Scene, events: Events) -> None:
    """A holder that cannot renew is stopped before the lock can be granted to another."""
    with RedisServer() as server, TcpProxy(server.port) as proxy:
        stage = scene.on(server, proxy.url(), lease=4)
        async with open_store(server) as direct, stage.worker(in_coroutine):
            running = await stage.start(ACTIVITY, stage.play(waits=True))
            await stage.saw("began1")
            proxy.black_hole()
            other = new_claim(stage.lock())
            await until(lambda: _granted(direct, other), "the end of the lease")
            assert (stage.scene / "cancelled1").exists()
            assert _has(events, "lock.lost")()
            proxy.heal()
            await direct.release(other)
            await stage.saw("began2")
            stage.cue()
            assert await running.result()
        await stage.store.close()


async def test_a_wrong_password_fails_the_activity_for_good(scene: Scene) -> None:
    """The workflow gets one non-retryable failure that names the variable, and not the password."""
    secret = f"hush-{uuid4().hex}"
    with RedisServer("--requirepass", PASSWORD) as server:
        stage = scene.on(server, f"redis://:{secret}@{HOST}:{server.port}")
        async with stage.worker(in_coroutine):
            handle = await stage.start(ACTIVITY, stage.play())
            with pytest.raises(WorkflowFailureError) as failed:
                await handle.result()
        activity_error = failed.value.cause
        assert isinstance(activity_error, ActivityError)
        cause = activity_error.cause
        assert isinstance(cause, ApplicationError)
        assert (cause.type, cause.non_retryable) == ("LockConfigurationError", True)
        assert "REDIS_PASSWORD" in cause.message
        assert secret not in (await handle.fetch_history()).to_json()
        await stage.store.close()


@pytest.fixture
async def login() -> AsyncIterator[tuple[RedisServer, RedisLockStore]]:
    """A server with a user, and a store that has logged in as that user and holds nothing."""
    with RedisServer() as server:
        _make_user(server)
        async with open_store(server, redis_username="ada", redis_password=PASSWORD) as store:
            await store.check()
            yield server, store


def _make_user(server: RedisServer) -> None:
    command(server, "ACL", "SETUSER", "ada", "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all")


def _change_password(server: RedisServer) -> None:
    command(server, "ACL", "SETUSER", "ada", "resetpass", ">another")


def _delete_user(server: RedisServer) -> None:
    command(server, "ACL", "DELUSER", "ada")


async def test_a_changed_password_does_not_matter_to_who_is_connected(
    login: tuple[RedisServer, RedisLockStore],
) -> None:
    """Connections that exist go on when the password is changed."""
    server, store = login
    claim = new_claim()
    await take(store, claim)
    _change_password(server)
    assert await store.release(claim)


@pytest.mark.parametrize("change", [_change_password, _delete_user])
async def test_a_login_that_worked_may_work_again(
    login: tuple[RedisServer, RedisLockStore], change: Callable[[RedisServer], None]
) -> None:
    """While a password is changed or a user made anew, those who were logged in wait; others are refused."""
    server, store = login
    claim = new_claim()
    await take(store, claim)
    change(server)
    command(server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    error = await until(lambda: _refusal(store, claim), "a refused login")
    assert "REDIS_PASSWORD" in str(error)
    async with open_store(server, redis_username="ada", redis_password=PASSWORD) as newcomer:
        with pytest.raises(LockConfigurationError, match="refuses the login"):
            await newcomer.check()
    _make_user(server)
    assert await until_answered(lambda: store.renew(claim, lease=timedelta(seconds=30)))
    assert await store.release(claim)


async def _refusal(store: RedisLockStore, claim: Claim) -> LockStoreUnavailable | None:
    """The error when it is this one: at first a connection may be seen as cut."""
    try:
        await store.inspect(claim.lock)
    except LockStoreUnavailable as error:
        return error if "refuses the login" in str(error) else None
    return None


async def _granted(store: RedisLockStore, claim: Claim) -> bool:
    return isinstance(await store.acquire(claim, lease=timedelta(seconds=30)), Granted)
