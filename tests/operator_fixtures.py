"""A pytest plugin: ``operator`` runs commands for an application of its own, on the Valkey of the tests."""

from uuid import uuid4

import pytest
from operator_cli import Operator

from lock_interceptor.dev import RedisServer


@pytest.fixture
def operator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], valkey: RedisServer
) -> Operator:
    """An operator whose shell leads to the server."""
    operator = Operator(monkeypatch, capsys)
    operator.application = f"app-{uuid4()}"
    operator.exports(REDIS_URL=valkey.url, APPLICATION_NAME=operator.application, COLUMNS=None)
    return operator
