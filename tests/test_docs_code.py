"""The Python on the pages runs, and prints what stands below it."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from docs_blocks import PAGES, blocks
from docs_run import as_test_file, ended_well, fragments, has_tests
from docs_shapes import recognised

from lock_interceptor.dev import RedisServer, TemporalServer

RUNNER = Path(__file__).parent / "docs_run.py"
TESTED = [page for page in PAGES if has_tests(page)]
RUN = [page for page in PAGES if fragments(page) and page not in TESTED]


async def run_python(*arguments: str, **environment: str) -> str:
    """Run Python in a process of its own, and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env=os.environ | {"APPLICATION_NAME": str(uuid4())} | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    assert ended_well(process.returncode), (out + err).decode()
    return out.decode()


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
async def test_code_runs_and_prints_what_it_says(
    page: Path, temporal_server: TemporalServer, valkey: RedisServer
) -> None:
    """The blocks of a page run one after the other; an output below one is the one that it has."""
    ran = await run_python(
        str(RUNNER), str(page), TEMPORAL_ADDRESS=temporal_server.address, REDIS_URL=valkey.url
    )
    printed = dict(json.loads(line) for line in ran.splitlines())

    assert list(printed) == [block.line for block in fragments(page)]
    everything = blocks(page)
    for block, following in zip(everything, [*everything[1:], None], strict=True):
        if block.line in printed:
            shown = following is not None and following.kind == "text" and not recognised(following.text)
            assert printed[block.line] == (following.text if following and shown else ""), str(block)


@pytest.mark.parametrize("page", TESTED, ids=lambda page: page.name)
async def test_tests_on_pages_pass(page: Path, tmp_path: Path) -> None:
    """The blocks of a page that shows tests are a file of tests that pass, all of them."""
    file = tmp_path / "test_page.py"
    file.write_text(as_test_file(page), "utf-8")

    printed = await run_python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--rootdir", str(tmp_path),
        str(file),
    )  # fmt: skip

    tests = re.findall(r"^(?:async )?def test_", file.read_text("utf-8"), re.MULTILINE)
    assert f"{len(tests)} passed" in printed
