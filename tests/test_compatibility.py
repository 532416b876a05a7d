"""What is claimed of versions is what `compatibility.py` runs the tests with."""

import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from compatibility import MAIN_TESTS, ROOT, find_python, lowest_versions, main, project, pythons
from packaging.requirements import Requirement


def test_every_python_since_the_oldest_is_named() -> None:
    """The classifiers name each version from the one that is required on, and so each one is tested."""
    numbers = [int(each.partition(".")[2]) for each in pythons()]

    assert project()["requires-python"] == f">={pythons()[0]}"
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in pythons()


def test_every_library_has_a_lowest_version() -> None:
    """All that users get is held to where its range begins; what is installed here is within the range."""
    wanted = [*project()["dependencies"], *project()["optional-dependencies"]["cli"]]
    ranges = {each.name: each.specifier for each in map(Requirement, wanted)}
    lowest = {each.name: each.specifier for each in map(Requirement, lowest_versions())}

    assert lowest.keys() == ranges.keys()
    for name, allowed in ranges.items():
        (exactly,) = lowest[name]
        assert exactly.operator == "=="
        assert allowed.contains(exactly.version)
        assert allowed.contains(version(name))


def test_the_main_tests_exist() -> None:
    """Each name stands for a file, once."""
    assert len(set(MAIN_TESTS)) == len(MAIN_TESTS)
    assert [name for name in MAIN_TESTS if not (ROOT / "tests" / f"{name}.py").is_file()] == []


def test_only_a_python_that_runs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that starts nothing, as version managers put on the path, is no interpreter."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    stand_in = tmp_path / f"python{here}"
    stand_in.write_text("#!/bin/sh\nexit 127\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr("compatibility.PYENV", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_python(here) is None

    stand_in.unlink()
    stand_in.symlink_to(sys.executable)
    assert find_python(here) == str(stand_in)


@pytest.mark.parametrize("in_ci", [True, False])
def test_a_missing_python_fails_in_ci_only(
    in_ci: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Versions that this machine has not are named; a CI that cannot run them all is not green."""
    monkeypatch.setattr("compatibility.find_python", lambda _: None)
    monkeypatch.setenv("CI", str(in_ci).lower())

    assert main(["pythons"]) == in_ci
    assert f"not installed here: {', '.join(pythons())}" in capsys.readouterr().out
