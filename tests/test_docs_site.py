"""The site: all pages are in its navigation, it builds without a warning, and it fetches nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

from docs_blocks import DOCS, ROOT, require

CONFIGURATION = ROOT / "mkdocs.yml"


def test_every_page_is_in_the_navigation() -> None:
    """A page that nobody is led to is not read."""
    navigation = CONFIGURATION.read_text("utf-8").split("\nnav:\n")[1]

    assert sorted(re.findall(r": ([\w-]+\.md)$", navigation, re.MULTILINE)) == sorted(
        page.name for page in DOCS.glob("*.md")
    )


def test_the_site_builds_and_fetches_nothing(tmp_path: Path) -> None:
    """The strict build takes each broken link for an error; readers' browsers ask no other server."""
    require("material")
    # not --quiet: that silences what --strict counts
    built = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", CONFIGURATION, "-d", tmp_path],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert built.returncode == 0, built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert {page.stem for page in pages} >= {page.stem for page in DOCS.glob("*.md")}
    for page in pages:
        asked = re.findall(
            r"<(?:link|script|img|iframe)\b[^>]*(?:href|src)=\"?(https?:[^\" >]+)", page.read_text()
        )
        assert asked == [], page.name
