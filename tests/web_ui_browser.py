"""A headless Chromium that reaches nothing but this machine."""

import base64
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from servers import wait_until

from lock_interceptor.dev.process import HOST

NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT, SHARPNESS = 1100, 1600, 1.5
"""Of the window, in the pixels of a page, and how many pixels of a picture each of these has.

High enough for a pending activity to be seen without scrolling.
"""
DISTURBED = "ERR_NETWORK_CHANGED"
"""What Chromium ends all requests with when the machine gets or loses an address, as it does in other tests.

The page then has to be loaded anew.
"""
PATIENCE = 40.0
"""Seconds for a page, of which a busy machine takes some."""

FLAGS = (
    "--headless",
    "--no-sandbox",  # which root cannot have, nor many a container
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",  # small in containers
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {HOST}",
    f"--window-size={WIDTH},{HEIGHT}",
    f"--force-device-scale-factor={SHARPNESS}",
)

# the card of the first pending activity, down to the end of its last failure
AREA = """
const paragraph = text => [...document.querySelectorAll("p")].find(p => p.textContent === text);
const failure = paragraph("Last Failure").parentElement.getBoundingClientRect();
const top = document.querySelector("h4").parentElement.getBoundingClientRect().top;
const margin = 16;
return {
  x: failure.left - margin, y: top - margin,
  width: failure.width + 2 * margin, height: failure.bottom - top + margin + 6,
};
"""


class Browser:
    """What a person with a browser can do, as far as it is needed here."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    def read(self, url: str, mark: str) -> str:
        """Open a page, wait until `mark` can be read on it, and return all that can be read."""
        loading = False

        def readable() -> bool:
            nonlocal loading
            if not loading or self._was_disturbed():
                loading = self._load(url)
            return mark in self._text()

        try:
            wait_until(readable, f"{mark!r} on {url}", PATIENCE)
        except TimeoutError as error:
            raise AssertionError(f"{error}, but {self._text()!r}") from None
        return self._text()

    def source(self) -> str:
        """The open page with all that cannot be seen."""
        return self._driver.page_source

    def photograph(self, file: Path) -> None:
        """Write a picture of the open page's pending activity."""
        clip = {**self._driver.execute_script(AREA), "scale": 1}
        taken = self._driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip})
        file.write_bytes(base64.b64decode(taken["data"]))

    def _load(self, url: str) -> bool:
        try:
            self._driver.get(url)
        except WebDriverException as error:
            if DISTURBED not in str(error):
                raise
            return False
        return True

    def _was_disturbed(self) -> bool:
        """Whether the page, or a part of it, did not come since this was asked last."""
        messages = [entry["message"] for entry in self._driver.get_log("browser")]
        return any(DISTURBED in text for text in (self._text(), *messages))

    def _text(self) -> str:
        text: str = self._driver.execute_script("return document.body.innerText")
        return text


def find_chromium() -> tuple[str, str] | None:
    """The browser and the driver that belongs to it, where both are installed."""
    browser, driver = next(filter(None, map(shutil.which, NAMES)), None), shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def require_chromium() -> tuple[str, str]:
    """What `find_chromium` finds; without it the test is skipped, or fails in CI."""
    if found := find_chromium():
        return found
    if os.environ.get("CI") == "true":
        pytest.fail("CI has to have chromium and chromedriver")
    pytest.skip("chromium and chromedriver are not installed")


@contextlib.contextmanager
def open_browser(binaries: tuple[str, str]) -> Iterator[Browser]:
    """Open a browser that has never been used, and close it at the end of the block."""
    options = webdriver.ChromeOptions()
    options.binary_location, driver_binary = binaries
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options, Service(driver_binary))
        try:
            driver.set_page_load_timeout(PATIENCE)
            yield Browser(driver)
        finally:
            driver.quit()
