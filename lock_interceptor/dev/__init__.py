"""Servers for one machine: a demo, the tests, the examples and the benchmarks start from here.

Not for production: nothing here is durable, secured or meant to be reached from another machine.
"""

from lock_interceptor.dev.process import DevServerError
from lock_interceptor.dev.servers import DevServers, RedisServer, TemporalServer

__all__ = ["DevServerError", "DevServers", "RedisServer", "TemporalServer"]
