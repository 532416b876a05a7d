"""What a bug is: a text in the package that is replaced by a wrong one, and the tests that must not pass."""

from dataclasses import dataclass
from pathlib import Path

PACKAGE = "lock_interceptor"


class StaleError(Exception):
    """The package has changed, and the bug has to be written anew."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A text that occurs exactly once in a file of the package, and what to put in its place."""

    file: str
    right: str
    wrong: str

    def apply(self, root: Path) -> str:
        """The file's text with the bug in it, for the checkout at `root`.

        Raises:
            StaleError: the text does not occur, or more than once.
        """
        text = (root / PACKAGE / self.file).read_text("utf-8")
        if (times := text.count(self.right)) != 1:
            raise StaleError(f"{self.file} has this {times} times instead of once: {self.right!r}")
        return text.replace(self.right, self.wrong)


@dataclass(frozen=True, slots=True)
class Bug:
    """A mistake that somebody might make."""

    name: str
    """What goes wrong, in plain words."""
    edits: tuple[Edit, ...]
    """Each in another file."""
    tests: tuple[str, ...]
    """Node ids below ``tests/``, the cheapest first: at least one has to fail."""


def bug(name: str, file: str, right: str, wrong: str, *tests: str) -> Bug:
    """A bug in one place."""
    return Bug(name, (Edit(file, right, wrong),), tests)
