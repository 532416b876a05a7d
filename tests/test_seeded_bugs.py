"""The seeded bugs: each can still be put in, and the tests catch all of them."""

import ast
import os
from collections import Counter
from pathlib import Path

import pytest
from seeded_bugs import ROOT, Outcome, Run, check, judge, page
from seeds import BUGS, Bug
from seeds.bug import PACKAGE, Edit, StaleError
from servers import command

from lock_interceptor.dev import RedisServer
from lock_interceptor.redis_store.scripts import HEADS

SCRIPTS = Path("redis_store/scripts")
LEAST = 20
every_bug = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)


def test_there_are_enough_of_them() -> None:
    """Each has a name of its own, says what is wrong, and names tests that exist."""
    assert len(BUGS) >= LEAST
    assert max(Counter(bug.name for bug in BUGS).values()) == 1
    for bug in BUGS:
        assert bug.tests
        for test in bug.tests:
            file, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (ROOT / "tests" / file).read_text("utf-8"), bug.name


@every_bug
def test_it_can_be_put_in(bug: Bug, valkey: RedisServer) -> None:
    """What it replaces is in the package exactly once, and what comes of it is still a program."""
    for edit in bug.edits:
        text = edit.apply(ROOT)
        if not edit.file.endswith(".lua"):
            ast.parse(text)
            continue
        folder, changed = ROOT / PACKAGE / SCRIPTS, Path(edit.file).stem
        texts = {path.stem: path.read_text("utf-8") for path in folder.glob("*.lua")} | {changed: text}
        heads = [texts.pop(head) for head in HEADS]
        for name, script in texts.items():
            if changed in (name, *HEADS):
                shebang, _, body = script.partition("\n")
                assert command(valkey, "SCRIPT", "LOAD", "\n".join([shebang, *heads, body]))


def test_a_bug_that_is_stale_is_told(tmp_path: Path) -> None:
    """A text that is gone, or that stands there twice, is no bug but a mistake in the list."""
    (tmp_path / PACKAGE).mkdir()
    (tmp_path / PACKAGE / "some.py").write_text("twice twice once")
    assert Edit("some.py", "once", "never").apply(tmp_path) == "twice twice never"
    for right in ("twice", "gone"):
        with pytest.raises(StaleError, match="instead of once"):
            Edit("some.py", right, "").apply(tmp_path)


@pytest.mark.parametrize(
    ("status", "failed", "problem"),
    [
        (1, ("test_it", "assert 1 == 2"), ""),
        (0, None, "all tests pass"),
        (1, None, "no test failed, only what is around it"),
        (1, ("test_it", "NameError: name 'clok' is not defined"), "it is no program any more: NameError"),
        (1, ("test_it", "redis: Error compiling script"), "it is no program any more: compiling script"),
        (2, None, "pytest ended with 2"),
        (97, None, "pytest ended with 97"),
        (-1, None, "pytest ended with -1"),
    ],
)
def test_only_a_test_that_fails_catches_a_bug(
    status: int, failed: tuple[str, str] | None, problem: str
) -> None:
    """Not a package that cannot be imported, nor a run that hangs or tests another package."""
    _, why = judge(Run(status, "the last line", (failed,) if failed else ()))
    assert why.startswith(problem)
    assert bool(why) == bool(problem)


def test_the_table_says_what_became_of_each() -> None:
    """A bug that survived is seen in the page as well."""
    caught, survived = (Outcome(BUGS[n], name, why, 1.0) for n, name, why in [(0, "t", ""), (1, "", "alas")])
    text = page([caught, survived])
    assert "1 of 2 are caught" in text
    assert f"| {BUGS[0].name} | `t` | 1.0 |" in text
    assert f"| {BUGS[1].name} | alas | 1.0 |" in text


def test_it_is_the_copy_that_is_tested() -> None:
    """A change that breaks nothing survives, one that breaks the copy is caught, and a stale one is told."""
    test = ("test_exports.py::test_version",)
    harmless = Bug("harmless", (Edit("errors.py", "from __future__", "# a comment\nfrom __future__"),), test)
    version = Bug(
        "another version", (Edit("__init__.py", 'if name == "__version__"', 'if name == "version"'),), test
    )
    stale = Bug("stale", (Edit("errors.py", "no such text", ""),), test)
    outcomes = check([harmless, version, stale], 1, print)
    assert [bool(outcome.problem) for outcome in outcomes] == [True, False, True]
    assert outcomes[1].caught_by == "tests/test_exports.py::test_version"


@pytest.mark.timeout(900)
@pytest.mark.skipif(
    os.environ.get("SEEDED_BUGS") != "1",
    reason="takes minutes: SEEDED_BUGS=1",
)
def test_every_bug_is_caught() -> None:
    """Each of them makes a test fail that passes without it."""
    outcomes = check(BUGS, 2 * (os.cpu_count() or 1), print)  # half of the time they wait
    assert not [str(outcome) for outcome in outcomes if outcome.problem]
