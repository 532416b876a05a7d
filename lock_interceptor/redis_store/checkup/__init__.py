"""A check-up of Redis against the settings: what would keep locks from working, and what to do about it."""

from lock_interceptor.redis_store.checkup.findings import Finding, Level, Report
from lock_interceptor.redis_store.checkup.run import examine

__all__ = ["Finding", "Level", "Report", "examine"]
