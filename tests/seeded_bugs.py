"""Do the tests notice? Puts bugs into copies of the package, one at a time, and runs tests that have to fail.

    python tests/seeded_bugs.py [-j 2] [--only NAME] [--markdown FILE]

The exit status is 1 if a bug is not caught, or cannot be put in any more because the package has changed.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seeds import BUGS, Bug
from seeds.bug import PACKAGE, StaleError
from seeds.watch import COPY, GATE, NOTES

ROOT = Path(__file__).resolve().parents[1]
COPIED = (PACKAGE, "tests", "pyproject.toml")
TEST_SECONDS, RUN_SECONDS = 60, 300
BROKEN = re.compile(
    r"NameError|UnboundLocalError|SyntaxError|ImportError|compiling script|nonexistent global variable"
)
"""What a bug must not fail with: it would be no bug, just no program."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a bug."""

    bug: Bug
    caught_by: str
    """Node id of the test that failed; empty if there is none."""
    problem: str
    """Why the bug does not count as caught; empty if it does."""
    seconds: float

    def __str__(self) -> str:
        state = f"caught by {self.caught_by}" if not self.problem else f"NOT CAUGHT: {self.problem}"
        return f"{self.seconds:5.1f} s  {self.bug.name}: {state}"


@dataclass(frozen=True, slots=True)
class Run:
    """What pytest said."""

    status: int
    output: str
    failed: tuple[tuple[str, str], ...]
    """Tests that failed: id and text."""


def check(bugs: Sequence[Bug], jobs: int, say: Callable[[str], None]) -> list[Outcome]:
    """Try all these bugs, so many at the same time.

    Raises:
        RuntimeError: the tests do not pass without any bug, so that their failing proves nothing.
    """
    with tempfile.TemporaryDirectory(prefix="seeded-") as directory:
        good = Path(directory) / "good"
        _copy(ROOT, good)
        tests = list(dict.fromkeys(test for bug in bugs for test in bug.tests))
        say(f"{len(bugs)} bugs, {len(tests)} tests that have to pass without them ...")
        run = _pytest(good, tests, *(("-n", str(jobs), "--dist", "loadfile") if jobs > 1 else ()))
        if run.status != 0:
            raise RuntimeError(f"without a bug pytest ended with {run.status}:\n{run.output}")
        outcomes: dict[Bug, Outcome] = {}
        with ThreadPoolExecutor(jobs) as pool:
            futures = {
                pool.submit(_try, bug, good, Path(directory) / f"bug{n}") for n, bug in enumerate(bugs)
            }
            for number, future in enumerate(as_completed(futures), 1):
                outcome = future.result()
                outcomes[outcome.bug] = outcome
                say(f"{number:3}/{len(bugs)} {outcome}")
        return [outcomes[bug] for bug in bugs]


def table(outcomes: Sequence[Outcome]) -> str:
    """In Markdown."""
    rows = [
        f"| {each.bug.name} | {each.problem or f'`{each.caught_by}`'} | {each.seconds:.1f} |"
        for each in outcomes
    ]
    return "\n".join(["| bug | caught by | seconds |", "|---|---|---:|", *rows]) + "\n"


def page(outcomes: Sequence[Outcome]) -> str:
    """The table with a few words before it."""
    caught = sum(not each.problem for each in outcomes)
    return (
        "# Seeded bugs\n\n"
        "Would the tests notice? Each of these bugs is put into a copy of the package, one at a time, by "
        "`python tests/seeded_bugs.py`, and the test beside it fails there while it passes without the bug: "
        f"{caught} of {len(outcomes)} are caught. `make bugs` does it again, and fails when a bug "
        "survives.\n\n" + table(outcomes)
    )


def _try(bug: Bug, good: Path, copy: Path) -> Outcome:
    start = time.monotonic()
    try:
        _copy(good, copy)
        for edit in bug.edits:
            (copy / PACKAGE / edit.file).write_text(edit.apply(good), "utf-8")
        run = _pytest(copy, bug.tests, "-x")
        caught_by, problem = judge(run)
    except StaleError as error:
        caught_by, problem = "", str(error)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return Outcome(bug, caught_by, problem, time.monotonic() - start)


def judge(run: Run) -> tuple[str, str]:
    """The test that caught a bug, and why it does not count: only a test that ran and failed does."""
    last = run.output.strip().splitlines()[-1:] or [""]
    if run.status == 0:
        return "", "all tests pass"
    if run.status != 1:
        return "", f"pytest ended with {run.status}: {last[0]}"
    if not run.failed:
        return "", f"no test failed, only what is around it: {last[0]}"
    name, text = run.failed[0]
    if broken := BROKEN.search(text):
        return name, f"it is no program any more: {broken[0]}"
    return name, ""


def _copy(source: Path, target: Path) -> None:
    for name in COPIED:
        if (source / name).is_dir():
            # the caches of the checkout may belong to other places
            ignored = shutil.ignore_patterns("__pycache__") if source == ROOT else None
            shutil.copytree(source / name, target / name, ignore=ignored)
        else:
            shutil.copy2(source / name, target / name)
    (target / "sitecustomize.py").write_text(GATE)


def _pytest(copy: Path, tests: Sequence[str], *options: str) -> Run:
    """Run these tests of a copy, on the package in it."""
    notes = copy / "failed.json"
    notes.touch()
    places = {"PYTHONPATH": os.pathsep.join(map(str, (copy, copy / "tests"))), COPY: str(copy)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "seeds.watch"]
    command += [f"--timeout={TEST_SECONDS}", *options, *(f"tests/{test}" for test in tests)]
    with _process(command, copy, {**os.environ, **places, NOTES: str(notes)}) as process:
        try:
            output, _ = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            return Run(-1, f"it did not end within {RUN_SECONDS} s", ())
    failed = (json.loads(line) for line in notes.read_text("utf-8").splitlines())
    return Run(process.returncode, output, tuple((each["id"], each["text"]) for each in failed))


@contextmanager
def _process(
    command: list[str], directory: Path, environment: dict[str, str]
) -> Iterator["subprocess.Popen[str]"]:
    """A process that leaves no servers behind, however its tests end."""
    process = subprocess.Popen(  # noqa: S603 - ours
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def main() -> int:
    """Try bugs, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-j", "--jobs", type=int, default=2, help="how many at the same time")
    parser.add_argument("--only", action="append", metavar="NAME", help="bugs with this in their names")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table there")
    options = parser.parse_args()
    bugs = [bug for bug in BUGS if any(part in bug.name for part in options.only or [""])]
    if not bugs:
        parser.error(f"no bug has {' or '.join(options.only)} in its name")
    try:
        outcomes = check(bugs, options.jobs, lambda line: print(line, file=sys.stderr, flush=True))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    print(table(outcomes))
    if options.markdown:
        options.markdown.write_text(page(outcomes), "utf-8")
    survived = [each for each in outcomes if each.problem]
    print(f"{len(outcomes) - len(survived)} of {len(outcomes)} caught", file=sys.stderr)
    return int(bool(survived))


if __name__ == "__main__":
    sys.exit(main())
