"""The fault matrix on one server: rights, passwords and users that change under load, and no connections."""

from pathlib import Path

import pytest
import redis
from acl_users import PASSWORD, USER, allow
from fault_matrix import Inject, Row, Scene, for_a_while, play
from rights import least_rights
from servers import command, matrix_binary

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST

REFUSED = "LockConfigurationError"
A_WHILE = 0.6


def user(server: RedisServer, *rules: str) -> None:
    """Change the user that the load has."""
    command(server, "ACL", "SETUSER", USER, *rules)


def disconnect(server: RedisServer) -> None:
    """Close all connections, so that all have to log in again."""
    for kind in ("normal", "pubsub"):
        command(server, "CLIENT", "KILL", "TYPE", kind)


def without(*rules: str) -> Inject:
    """Rights are taken away, and given back."""

    async def inject(scene: Scene) -> None:
        with scene.fault(" ".join(rules)):
            user(scene.server, *rules)
            await for_a_while(A_WHILE)
            user(scene.server, *least_rights())

    return inject


async def password_changed(scene: Scene) -> None:
    with scene.fault("password changed"):
        user(scene.server, "resetpass", ">another")
        await scene.loaded.until_progress()  # for who is connected, nothing has changed
        disconnect(scene.server)
        await for_a_while(A_WHILE)
        user(scene.server, f">{PASSWORD}")


async def user_deleted(scene: Scene) -> None:
    with scene.fault("user deleted"):
        command(scene.server, "ACL", "DELUSER", USER)
        await for_a_while(A_WHILE)
        allow(scene.server, *least_rights())


async def no_more_connections(scene: Scene) -> None:
    port = scene.server.port
    with scene.fault("maxclients"), redis.Redis(host=HOST, port=port, protocol=2) as admin:
        admin.execute_command("CONFIG", "SET", "maxclients", 4)  # this one, and three for all the load
        for kind in ("normal", "pubsub"):
            admin.execute_command("CLIENT", "KILL", "TYPE", kind)
        await for_a_while(A_WHILE)
        admin.execute_command("CONFIG", "SET", "maxclients", 1000)


UNTIDY = {"tidy": False}
"""Who is denied everything cannot leave the line either."""
ROWS = [
    Row("no keys", without("resetkeys"), {"unclear answers": 1}, expected=UNTIDY),
    Row("no EVALSHA", without("-evalsha"), {"unclear answers": 1}, expected=UNTIDY),
    Row("no PUBLISH", without("-publish"), {}, {"lost": 0, "errors in scripts": 0}),
    Row("no channel", without("resetchannels"), {}, {"lost": 0}),
    Row("no INFO", without("-info"), {}, {"lost": 0}),
    Row("password changed", password_changed, {"unclear answers": 1}),
    Row("user deleted", user_deleted, {"unclear answers": 1}),
    Row("maxclients", no_more_connections, {"unclear answers": 1}),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_rights_that_change(row: Row, tmp_path: Path) -> None:
    """No slot leaks while something is denied, nobody fails for good by a login, and things go on after."""
    with RedisServer(binary=matrix_binary()) as server:
        url = allow(server, *least_rights())
        _, loaded = await play(row, server, tmp_path, settings={"REDIS_URL": url})
    denied = loaded.outcomes()[REFUSED] > 0
    assert denied == (row.expected == UNTIDY), loaded.outcomes()
