"""The ``lock-interceptor`` command."""
