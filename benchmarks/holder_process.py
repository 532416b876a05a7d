"""Takes a lock, says so, and holds it until it is killed: ``holder_process.py WHO URL LOCK LEASE``."""

import asyncio
import importlib
import logging
import sys
from datetime import timedelta

import redis
import structlog
from contestants import new_claim, settings_for
from waiters import Line


async def hold(who: str, url: str, lock: str, lease: float) -> None:
    if who == "lock_interceptor":
        line = Line(settings_for(url, lease=timedelta(seconds=lease)))
        await line.run(new_claim(lock), _hold)
    elif who == "redis-py Lock":
        await redis.asyncio.Redis.from_url(url, protocol=2).lock(lock, timeout=lease).acquire()
        await _hold()
    else:
        client = redis.Redis.from_url(url, protocol=2)
        importlib.import_module("redis_lock").Lock(
            client, lock, expire=int(lease), auto_renewal=True
        ).acquire()
        await _hold()


async def _hold() -> None:
    print("held", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(hold(*sys.argv[1:4], float(sys.argv[4])))
