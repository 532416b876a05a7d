"""One request to the primary that has a lock's key, and what its replicas have confirmed of it.

``WAIT`` speaks of what was written on its own connection. So both go as one pipeline to one node, and where
a Cluster points to another node both are sent again there: redis-py would follow with the script alone, and
take the old node's word for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    RedisClusterException,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from lock_interceptor.errors import LockStoreUnavailable
from lock_interceptor.lease import clock
from lock_interceptor.redis_store.connection import Connections
from lock_interceptor.redis_store.durability import Confirmations, Kind, Replicas
from lock_interceptor.redis_store.wire import Words, unmarked

HOPS = 3
ASK_EVERY = 5.0
"""Seconds after which Sentinel or the Cluster is asked again for the replicas that it knows."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The script's answer, and how many of which replicas have confirmed it."""

    answer: Any
    confirmed: int
    replicas: Replicas


Run = Callable[[list[Words]], Awaitable[list[Any]]]
"""Sends commands on one connection, and returns their results with errors among them."""


async def send(
    connections: Connections,
    key: str,
    words: Words,
    mark: int,
    *,
    kind: Kind,
    confirmations: Confirmations,
    ahead: bool = False,
) -> Reply:
    """Run a script with a mark, and learn how many replicas have it. `ahead` as in `Connections.use`.

    Raises:
        RedisError: the server's, or the connection's; it may or may not have been executed.
        LockStoreUnavailable: nobody can tell how many replicas would have to confirm it.
    """
    confirmed = confirmations.asked_for(kind)
    shared = connections.shared_ahead if ahead else connections.shared
    if shared is not None and not confirmed:
        return Reply(await shared.request(words, mark), 0, confirmations.of(""))
    async with connections.use(ahead=ahead) as client:
        named = connections.named_primary
        try:
            if confirmed:
                reply = await _send_confirmed(connections, key, words, kind=kind, confirmations=confirmations)
                return replace(reply, answer=unmarked(reply.answer, mark))
            answer = await cast("Any", client.execute_command(*words))
            return Reply(unmarked(answer, mark), 0, confirmations.of(_primary(client, key)))
        except _UNREACHABLE:
            if confirmed:
                # unlike a single command, a pipeline leaves a Cluster client at that
                connections.look_again()
            raise
        except ResponseError as error:
            if str(error).startswith("NOREPLICAS"):
                # who was replaced on demand refuses like this, for ten seconds, and keeps its connections
                await connections.expect_primary(named)
            raise


_UNREACHABLE = (RedisConnectionError, RedisTimeoutError, RedisClusterException, ClusterDownError, OSError)


async def _send_confirmed(
    connections: Connections, key: str, words: Words, *, kind: Kind, confirmations: Confirmations
) -> Reply:
    client, named = connections.client, connections.named_primary
    async with contextlib.AsyncExitStack() as stack:
        primary, run, asking = _primary(client, key), _pipeline(client, key), False
        for _ in range(HOPS):
            replicas = confirmations.of(primary)
            await _learn(connections, replicas, run)
            commands: list[Words] = [("ASKING",), words] if asking else [words]
            if count := replicas.to_wait_for(kind):
                commands.append(("WAIT", count, replicas.patience_ms(round(connections.timeout * 500))))
            results = await run(commands)
            answer, *confirmed = results[asking:]
            if not isinstance(answer, MovedError | AskError):
                reply = Reply(_value(answer), _value(confirmed[0]) if confirmed else 0, replicas)
                if reply.confirmed < replicas.needed(kind):
                    await connections.expect_primary(named)
                return reply
            asking = isinstance(answer, AskError)
            if not asking:
                connections.look_again()
            primary = f"{answer.host}:{answer.port}"
            run = _pipeline(await stack.enter_async_context(connections.at(answer.host, answer.port)), key)
    raise LockStoreUnavailable(f"Redis at {primary}: the lock is being moved between nodes")


def _primary(client: Redis | RedisCluster, key: str) -> str:
    return str(_node(client, key).name) if isinstance(client, RedisCluster) else ""


def _node(client: RedisCluster, key: str) -> ClusterNode:
    node = client.get_node_from_key(key)
    if node is None:
        raise LockStoreUnavailable("no node of the Cluster has the lock's slot")
    return node


def _pipeline(client: Redis | RedisCluster, key: str) -> Run:
    async def run(commands: list[Words]) -> list[Any]:
        if isinstance(client, RedisCluster):
            pipeline: Any = client.pipeline()
            target, how = {"target_nodes": _node(client, key)}, {"allow_redirections": False}
        else:
            pipeline, target, how = client.pipeline(transaction=False), {}, {}
        for words in commands:
            pipeline.execute_command(*words, **target)
        results: list[Any] = await pipeline.execute(raise_on_error=False, **how)
        return results

    return run


def _value(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result


async def _learn(connections: Connections, replicas: Replicas, run: Run) -> None:
    """Learn how many replicas may be promoted, from who would do it. Only ``strict`` depends on it.

    Not from ``INFO``: a primary does not know of a replica that is away, which may be promoted all the same.
    """
    if replicas.profile != "strict" or clock() < replicas.asked + ASK_EVERY:
        return
    if connections.sentinels is not None:
        known = await connections.sentinels.count_replicas()
        replicas.known = replicas.known if known is None else known
        if replicas.known is None:
            raise LockStoreUnavailable(
                f"Redis at {replicas.where}: no Sentinel says how many replicas there are"
            )
    elif isinstance(connections.client, RedisCluster):
        replicas.known, _ = read_nodes(_value((await run([("CLUSTER", "NODES")]))[0]))
    replicas.asked = clock()


async def bare_primaries(connections: Connections) -> tuple[str, ...]:
    """The primaries of a Cluster that have slots and no replica."""
    client = connections.client
    if not isinstance(client, RedisCluster):
        return ()
    text = await cast("Any", client.get_random_node().execute_command("CLUSTER", "NODES"))
    return read_nodes(text)[1]


def read_nodes(text: str) -> tuple[int, tuple[str, ...]]:
    """``CLUSTER NODES``: how many replicas the node that answers has, failed ones too, and who has none."""
    rows = [line.split() for line in text.splitlines()]
    replicas_of: dict[str, int] = {}
    for _, _, flags, primary, *_ in rows:
        if "slave" in flags.split(","):
            replicas_of[primary] = replicas_of.get(primary, 0) + 1
    mine = next(row[0] for row in rows if "myself" in row[2].split(","))
    primaries = (row for row in rows if "master" in row[2].split(",") and len(row) > 8)
    bare = tuple(row[1].partition("@")[0] for row in primaries if not replicas_of.get(row[0]))
    return replicas_of.get(mine, 0), bare
