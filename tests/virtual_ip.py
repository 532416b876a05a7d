"""A primary and its replicas behind one address that moves at a failover, as hosted services have it.

What a Sentinel or an operator does is done here step by step, so each loss can be had on purpose.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from proxy import TcpProxy
from servers import command, info, wait_until
from topologies import in_sync

from lock_interceptor.dev import RedisServer
from lock_interceptor.dev.process import HOST

AT_ONCE = ("--repl-diskless-sync-delay", "0")


class Pair:
    """A primary with replicas, each of which can be cut off from it."""

    def __init__(self, stack: ExitStack, replicas: int, options: tuple[str, ...]) -> None:
        self._stack = stack
        self.primary = stack.enter_context(RedisServer(*AT_ONCE, *options))
        self.links = [stack.enter_context(TcpProxy(self.primary.port)) for _ in range(replicas)]
        self.replicas = [
            stack.enter_context(RedisServer(*AT_ONCE, "--replicaof", f"{HOST} {link.port}"))
            for link in self.links
        ]
        self._roles = (self.primary, self.replicas[0])
        self._address = stack.enter_context(TcpProxy(self.primary.port))
        self.url = self._address.url()
        self.settle()

    def settle(self) -> None:
        """Wait until all replicas have what the primary has."""
        wait_until(lambda: in_sync(self.primary, len(self.replicas), "pair"), "replicas in sync")

    def cut_off(self, which: int) -> None:
        """Let nothing more reach this replica; the primary does not notice."""
        self.links[which].black_hole()

    def fail_over(self, to: int) -> None:
        """Kill the primary, and promote this replica."""
        self.primary.kill()
        new = self.replicas[to]
        command(new, "REPLICAOF", "NO", "ONE")
        self._lead_to(new)
        self._roles = (new, self.primary)

    def hand_over(self) -> None:
        """Let whoever is primary give its role to the first replica, or back, without a loss."""
        old, new = self._roles
        command(old, "FAILOVER", "TO", HOST, new.port)
        wait_until(lambda: info(new, "replication")["role"] == "master", "the hand-over")
        self._lead_to(new)
        self._roles = (new, old)

    def add_replica(self) -> None:
        """Give the server to which clients are led another replica, in sync."""
        primary, _ = self._roles
        self._stack.enter_context(RedisServer(*AT_ONCE, "--replicaof", f"{HOST} {primary.port}"))
        wait_until(lambda: in_sync(primary, 1, "pair"), "a new replica in sync")

    def _lead_to(self, server: RedisServer) -> None:
        self._address.target = server.port
        self._address.cut()


@contextmanager
def pair(replicas: int = 1, *options: str) -> Iterator[Pair]:
    """Start a primary, with these options, and its replicas."""
    with ExitStack() as stack:
        yield Pair(stack, replicas, options)
