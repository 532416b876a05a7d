"""Runs the Python of a page as its reader would: ``python tests/docs_run.py PAGE``.

The blocks of a page build on each other, as in a notebook. What each one prints goes out as a line of JSON:
the block's line on the page, and the text. Blocks that are programs or tests are not run here.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import signal
import sys
import types
from pathlib import Path

import structlog
from docs_blocks import Block, blocks

ASSUMED = """
import asyncio, contextlib, os, signal, sqlite3, tempfile, threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from lock_interceptor import *
from lock_interceptor.dev import RedisServer, TemporalServer
from lock_interceptor.testing import *
"""
"""What pages do not import again and again."""


def is_program(block: Block) -> bool:
    """Whether it is a file of its own, to be started."""
    return '__name__ == "__main__"' in block.text


def has_tests(page: Path) -> bool:
    """Whether the blocks of the page are tests, for pytest to run."""
    return any("def test_" in block.text for block in blocks(page) if block.kind == "python")


def fragments(page: Path) -> list[Block]:
    """The Python blocks that build on each other."""
    return [block for block in blocks(page) if block.kind == "python" and not is_program(block)]


def as_test_file(page: Path) -> str:
    """The blocks of a page with tests, as one file."""
    return "\n\n".join([ASSUMED, *(block.text for block in fragments(page))])


def ended_well(status: int) -> bool:
    """Whether a process that talked to Temporal ended as it should.

    The SDK's threads may abort the interpreter at its very end, when everything is done and printed.
    """
    return status in (0, -signal.SIGABRT, -signal.SIGSEGV)


def _compiled(block: Block) -> types.CodeType:
    place = "\n" * block.line  # so that an error names the line of the page
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        code: types.CodeType = compile(place + block.text, str(block.page), "exec", flags)
    except SyntaxError:
        # decorators alone, to show what they take
        bearer = "async def decorated(*_: object) -> None: ...\n"
        code = compile(place + block.text + bearer, str(block.page), "exec", flags)
    return code


async def _run(page: Path) -> None:
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )  # what is printed is compared
    module = types.ModuleType("page")
    sys.modules["page"] = module  # dataclasses and Temporal look their module up
    exec(ASSUMED, module.__dict__)  # noqa: S102 - our own pages
    for block in fragments(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = eval(_compiled(block), module.__dict__)  # noqa: S307 - as above
            if inspect.isawaitable(result):
                await result
        sys.stdout.write(json.dumps([block.line, printed.getvalue()]) + "\n")


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1])))
