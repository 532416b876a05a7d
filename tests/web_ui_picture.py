"""Draws docs/images/web-ui.png: a waiting activity as Temporal's Web UI shows it.

    python tests/web_ui_picture.py

Needs Debian's chromium and chromium-driver, or what corresponds to them.
"""

import asyncio
import sys
from pathlib import Path

from web_ui import LOCK, Checkout, checkout
from web_ui_browser import find_chromium, open_browser

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "web-ui.png"


def _draw(scene: Checkout, binaries: tuple[str, str]) -> None:
    with open_browser(binaries) as browser:
        browser.read(scene.page(scene.orders[-1]), f"lock {LOCK.name}")
        browser.photograph(PICTURE)


async def _main() -> None:
    binaries = find_chromium()
    if binaries is None:
        sys.exit("chromium and chromedriver are not installed")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    async with checkout() as scene:
        await asyncio.to_thread(_draw, scene, binaries)
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    asyncio.run(_main())
