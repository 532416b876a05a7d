"""``python -m lock_interceptor``, the same as ``lock-interceptor``."""

from lock_interceptor.ops.cli import entrypoint

if __name__ == "__main__":
    entrypoint()
