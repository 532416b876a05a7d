"""What may be wrong with a real Redis server, provoked for the time of a block. Restored at its end."""

import contextlib
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator

import redis
from servers import command, info, wait_until

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST, free_ports

NEEDS = (
    "--enable-debug-command",
    "local",
    "--enable-protected-configs",
    "local",
    "--busy-reply-threshold",
    "100",
    "--loading-process-events-interval-bytes",
    "1024",
)
"""Options of a server that allow all of this."""
PATIENCE = 20.0


def _set(server: RedisServer, name: str, value: object) -> None:
    command(server, "CONFIG", "SET", name, value)


@contextlib.contextmanager
def no_memory(server: RedisServer) -> Iterator[None]:
    """Its limit of memory is reached, and nothing is evicted."""
    _set(server, "maxmemory", 1)
    yield
    _set(server, "maxmemory", 0)


@contextlib.contextmanager
def evicting(server: RedisServer) -> Iterator[Callable[[], None]]:
    """It evicts whatever was not used last. Yields what writes some hundred keys that nobody needs."""
    numbers = itertools.count()

    def fill() -> None:
        with redis.Redis(port=server.port) as client, client.pipeline(transaction=False) as pipe:
            for number in itertools.islice(numbers, 500):
                pipe.set(f"filler-{number}", b"x" * 1000)
            pipe.execute()

    _set(server, "maxmemory", int(info(server, "memory")["used_memory"]) + 2_000_000)
    _set(server, "maxmemory-policy", "allkeys-lru")
    yield fill
    _set(server, "maxmemory-policy", "noeviction")
    _set(server, "maxmemory", 0)


@contextlib.contextmanager
def too_few_replicas(server: RedisServer) -> Iterator[None]:
    """It wants a replica that it does not have."""
    _set(server, "min-replicas-to-write", 1)
    yield
    _set(server, "min-replicas-to-write", 0)


@contextlib.contextmanager
def cannot_save(server: RedisServer) -> Iterator[None]:
    """Its directory is gone, a snapshot failed, and it takes no writes until that is mended."""
    directory = command(server, "CONFIG", "GET", "dir")[1]
    gone = os.path.join(directory, "gone")  # noqa: PTH118 - the server's, as a string
    os.mkdir(gone)  # noqa: PTH102
    _set(server, "dir", gone)
    shutil.rmtree(gone)
    _set(server, "save", "3600 1")
    command(server, "BGSAVE")
    wait_until(lambda: info(server, "persistence")["rdb_last_bgsave_status"] == "err", "a failed snapshot")
    yield
    _set(server, "save", "")
    _set(server, "dir", directory)
    command(server, "BGSAVE")
    wait_until(lambda: info(server, "persistence")["rdb_last_bgsave_status"] == "ok", "a snapshot")


@contextlib.contextmanager
def busy(server: RedisServer) -> Iterator[None]:
    """A script of somebody else never ends, until it is killed."""
    with _in_background(server, "EVAL", "while true do end", 0):
        wait_until(lambda: _answers(server, "BUSY"), "a busy server")
        yield
        command(server, "SCRIPT", "KILL")


@contextlib.contextmanager
def loading(server: RedisServer) -> Iterator[None]:
    """It reads its data again, slowly, and serves nobody meanwhile."""
    command(server, "DEBUG", "POPULATE", 1000, "filler")
    _set(server, "key-load-delay", 3000)
    with _in_background(server, "DEBUG", "RELOAD"):
        wait_until(lambda: _answers(server, "LOADING"), "a loading server")
        yield
        _set(server, "key-load-delay", 0)


@contextlib.contextmanager
def is_replica(server: RedisServer) -> Iterator[None]:
    """It has become the replica of a server that is not there."""
    command(server, "REPLICAOF", HOST, free_ports(1)[0])
    yield
    command(server, "REPLICAOF", "NO", "ONE")


@contextlib.contextmanager
def stale_replica(server: RedisServer) -> Iterator[None]:
    """The same, and it does not let anybody read either."""
    _set(server, "replica-serve-stale-data", "no")
    with is_replica(server):
        yield
    _set(server, "replica-serve-stale-data", "yes")


@contextlib.contextmanager
def crowded(server: RedisServer) -> Iterator[None]:
    """It takes no connection more."""
    with redis.Redis(host=HOST, port=server.port, protocol=2) as admin:
        admin.execute_command("CONFIG", "SET", "maxclients", len(admin.client_list()))
        yield
        admin.execute_command("CONFIG", "SET", "maxclients", 1000)


Trouble = Callable[[RedisServer], contextlib.AbstractContextManager[None]]


def _answers(server: RedisServer, word: str) -> bool:
    try:
        command(server, "GET", "anything")
    except redis.RedisError as error:
        return word in str(error) or getattr(error, "status_code", None) == word
    return False


@contextlib.contextmanager
def _in_background(server: RedisServer, *words: object) -> Iterator[None]:
    def send() -> None:
        with (
            contextlib.suppress(redis.RedisError),
            redis.Redis(host=HOST, port=server.port, socket_timeout=PATIENCE, protocol=2) as client,
        ):
            client.execute_command(*words)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    yield
    thread.join(PATIENCE)
    assert not thread.is_alive()
