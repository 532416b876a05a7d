"""Runs the main tests with other dependencies, or another Python, in environments made for that.

    python tests/compatibility.py lowest          # the lowest versions that pyproject.toml allows
    python tests/compatibility.py pythons         # each Python that the classifiers name
    python tests/compatibility.py pythons tests   # ... with everything, or whatever else pytest is given

A Python that this machine has not is named; in CI that is a failure.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
ENVIRONMENTS = ROOT / "build" / "environments"
PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
MAIN_TESTS = (
    "test_activity_lost",
    "test_activity_outcomes",
    "test_activity_waiting",
    "test_cli",
    "test_cli_doctor",
    "test_cli_locks",
    "test_cluster",
    "test_connection",
    "test_examples",
    "test_imports",
    "test_interceptor",
    "test_keeper",
    "test_kit_environment",
    "test_kit_fixtures",
    "test_marker",
    "test_metrics",
    "test_plugin",
    "test_readme",
    "test_sentinel",
    "test_settings",
    "test_settings_errors",
    "test_store_contract",
    "test_store_on_redis",
    "test_tls",
    "test_tracing",
    "test_wakeups",
    "test_workflow_check",
)
"""Each door to Redis and Temporal, and each part that users touch."""


CLOSED_A_MOMENT_LATER = (
    "-W",
    "ignore:unclosed:ResourceWarning",
    "-W",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
"""SDKs before 1.35 do not wait for what a plugin does last, so connections may outlive a test's loop."""


def project() -> dict[str, Any]:
    """What pyproject.toml says of the project."""
    content: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return content


def pythons() -> list[str]:
    """The versions that the classifiers name, oldest first."""
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project()["classifiers"]))
    return sorted(named, key=lambda version: int(version.partition(".")[2]))


def lowest_versions() -> list[str]:
    """A constraint for each library that users get with the package or its `cli` extra.

    The tools of the `dev` extra are as new as can be: users do not have them.
    """
    libraries = [*project()["dependencies"], *project()["optional-dependencies"]["cli"]]
    return [f"{library.name}=={lower_bound(library)}" for library in map(Requirement, libraries)]


def lower_bound(library: Requirement) -> str:
    """The lowest version that a requirement allows."""
    (bound,) = (clause.version for clause in library.specifier if clause.operator == ">=")
    return bound


def find_python(version: str) -> str | None:
    """An interpreter of this version, on the path or among pyenv's."""
    candidates = [shutil.which(f"python{version}"), *sorted(PYENV.glob(f"versions/{version}.*/bin/python"))]
    return next(
        (str(python) for python in candidates if python and _version_of(str(python)) == version), None
    )


def _version_of(python: str) -> str:
    """What an interpreter says it is; nothing if it does not run, as pyenv's stand-ins may not."""
    asked = subprocess.run(  # noqa: S603 - found by ourselves
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip()


def _run(*command: object) -> bool:
    ran = subprocess.run(list(map(str, command)), cwd=ROOT, check=False)  # noqa: S603 - our own commands
    return ran.returncode == 0


def _environment(name: str, python: str, constraints: Iterable[str] = ()) -> Path | None:
    """Make or update an environment with the package and its tests' tools; its directory of programs."""
    directory = ENVIRONMENTS / name
    directory.mkdir(parents=True, exist_ok=True)
    limits = directory / "constraints.txt"
    limits.write_text("".join(f"{line}\n" for line in constraints), "utf-8")
    programs = directory / "bin"
    made = (programs / "python").exists() or _run(python, "-m", "venv", directory)
    pip = (programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if made and _run(*pip, "--constraint", limits, "--editable", ".[dev]"):
        return programs
    return None


def _passes(name: str, python: str, constraints: list[str], what: list[str]) -> bool:
    print(f"{name}: {' '.join(constraints) or 'the newest versions'}", flush=True)
    programs = _environment(name, python, constraints)
    tests = what or [f"tests/{name}.py" for name in MAIN_TESTS]
    options = ("-q", "-n", 2, "--dist", "loadfile", *(CLOSED_A_MOMENT_LATER if constraints else ()))
    return programs is not None and _run(programs / "pytest", *options, *tests)


def _all_pythons_pass(what: list[str]) -> bool:
    found = {version: find_python(version) for version in pythons()}
    missing = [version for version, python in found.items() if python is None]
    failed = [
        version for version, python in found.items() if python and not _passes(version, python, [], what)
    ]
    print(
        f"passed: {', '.join(version for version in found if version not in (*missing, *failed)) or 'none'}"
    )
    for text, versions in (("failed", failed), ("not installed here", missing)):
        if versions:
            print(f"{text}: {', '.join(versions)}")
    return not failed and not (missing and os.environ.get("CI") == "true")


def main(arguments: list[str]) -> int:
    """Run what the command line asks for; 0 if all of it passed."""
    match arguments:
        case ["lowest", *what]:
            passed = _passes("lowest", sys.executable, lowest_versions(), what)
        case ["pythons", *what]:
            passed = _all_pythons_pass(what)
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
