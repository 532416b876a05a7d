"""The lock store on Redis: the only part of the package that imports redis."""

from lock_interceptor.redis_store.store import RedisLockStore

__all__ = ["RedisLockStore"]
