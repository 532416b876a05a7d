"""The pages of the documentation, taken apart: code blocks, links, headings, files that are named."""

import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.glob("*.md"))]

_FENCE = re.compile(r"^( *)(`{3,})(\w*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
_NAMED_FILE = re.compile(r"`((?:docs|examples|tests|lock_interceptor|benchmarks)/[\w./-]+\.\w+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block of code, and where it is."""

    page: Path
    line: int
    kind: str
    """What stands behind the fence, or what it looks like where nothing does."""
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, from top to bottom."""
    text = page.read_text("utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start()) + 1,
            found[3] or ("console" if found[4].startswith("$ ") else "text"),
            re.sub(rf"^{found[1]}", "", found[4], flags=re.MULTILINE),
        )
        for found in _FENCE.finditer(text)
    ]


def everything(*kinds: str) -> list[Block]:
    """The blocks of these kinds on all pages."""
    return [block for page in PAGES for block in blocks(page) if block.kind in kinds]


def prose(page: Path) -> str:
    """A page without its blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    """Where the page leads."""
    without_code = re.sub(r"`[^`\n]*`", "", prose(page))
    return _LINK.findall(without_code)


def named_files(page: Path) -> list[str]:
    """Files of the project that the text names."""
    return _NAMED_FILE.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """What ``#...`` may lead to: the headings, as code hosts and the generator name them."""
    return set(_anchors(page))


def _anchors(page: Path) -> Iterator[str]:
    for title in re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", title.replace("`", "")).strip().lower()
        yield words.replace(" ", "-")


def require(module: str) -> None:
    """Skip the test where the extra ``docs`` is not installed; in CI fail it."""
    if importlib.util.find_spec(module) is None:
        missing = f"{module} is not installed: pip install 'lock-interceptor[docs]'"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
