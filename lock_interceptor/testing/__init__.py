"""For users' own tests: `InMemoryLockStore`, which keeps every promise of `LockStore` without a server."""

from lock_interceptor.testing.memory_store import InMemoryLockStore

__all__ = ["InMemoryLockStore"]
