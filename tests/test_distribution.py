"""What is published: complete, valid, and nothing else."""

import re
import tarfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from distribution import ROOT, build, files_of, metadata_of, read_wheel
from packaging.metadata import Metadata
from readme_renderer import markdown

PACKAGE = ROOT / "lock_interceptor"
LEFTOVERS = {"__pycache__", ".pytest_cache", ".hypothesis", ".mypy_cache", ".ruff_cache", ".venv"}


class Published(NamedTuple):
    """What is built, and what the wheel says of itself."""

    wheel: Path
    sdist: Path
    metadata: Metadata


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Wheel and sdist of this tree."""
    wheel, sdist = build(tmp_path_factory.mktemp("dist"), "wheel", "sdist")
    return Published(wheel, sdist, metadata_of(wheel))


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """What pyproject.toml says of the project."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_wheel_is_the_package_and_nothing_else(published: Published) -> None:
    """Every module, every Lua script and the marker for type checkers are in it; no test, no leftover."""
    own = {
        str(file.relative_to(ROOT))
        for file in PACKAGE.rglob("*")
        if file.is_file() and not LEFTOVERS & set(file.parts)
    }
    packed = {file for file in files_of(published.wheel) if ".dist-info/" not in file}

    assert packed == own
    assert "lock_interceptor/py.typed" in packed
    scripts = {file.name for file in (PACKAGE / "redis_store" / "scripts").glob("*.lua")}
    assert {"acquire.lua", "renew.lua", "release.lua", "park.lua", "inspect.lua"} <= scripts
    assert {Path(file).name for file in packed if file.endswith(".lua")} == scripts


def test_the_sdist_has_what_it_takes_to_test_it(published: Published) -> None:
    """Tests, examples, documents and the license are in it, and no leftover."""
    packed = files_of(published.sdist)
    folders = {Path(file).parts[0] for file in packed if "/" in file}

    assert {"lock_interceptor", "tests", "examples", "docs"} <= folders
    assert {"README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "pyproject.toml"} <= packed
    assert {"tests/conftest.py", "tests/test_distribution.py", "tests/typing/api.py"} <= packed
    assert not [
        file for file in packed if LEFTOVERS & set(Path(file).parts) or file.endswith((".pyc", ".whl"))
    ]


def test_the_sdist_builds_the_same_wheel(published: Published, tmp_path: Path) -> None:
    """Whoever builds from the sdist gets the wheel that is published, byte by byte."""
    with tarfile.open(published.sdist) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    (wheel,) = build(tmp_path / "dist", "wheel", source=source)

    assert wheel.name == published.wheel.name
    assert wheel.read_bytes() == published.wheel.read_bytes()


def test_the_wheel_is_for_every_platform(published: Published) -> None:
    """There is nothing to compile."""
    assert published.wheel.name.endswith("-py3-none-any.whl")


def test_what_the_metadata_says(published: Published, project: dict[str, Any]) -> None:
    """Name, version, Python, license, extras and command are as in pyproject.toml, and as pip reads them."""
    metadata = published.metadata

    assert (metadata.name, str(metadata.version)) == (project["name"], project["version"])
    assert str(metadata.requires_python) == ">=3.11"
    assert set(metadata.provides_extra or ()) == set(project["optional-dependencies"]) >= {"cli", "dev"}
    assert metadata.license_expression == "Apache-2.0"
    assert [str(file) for file in metadata.license_files or ()] == ["LICENSE"]
    assert read_wheel(published.wheel, "/licenses/LICENSE") == (ROOT / "LICENSE").read_text("utf-8")
    assert "lock-interceptor = lock_interceptor.ops.cli:entrypoint" in read_wheel(
        published.wheel, ".dist-info/entry_points.txt"
    )


def test_production_needs_no_extra(published: Published) -> None:
    """Four libraries are required, each with a lower bound, and none of the tools for tests and terminals."""
    required = [each for each in published.metadata.requires_dist or () if each.marker is None]

    assert {each.name for each in required} == {"temporalio", "redis", "structlog", "pydantic-settings"}
    assert all(
        ">=" in str(each.specifier)
        for each in published.metadata.requires_dist or ()
        if each.name != "lock-interceptor"
    )


def test_addresses_work_anywhere(published: Published) -> None:
    """Whatever address the metadata names is a complete one."""
    assert all(url.startswith("https://") for url in (published.metadata.project_urls or {}).values())


def test_the_readme_renders(published: Published) -> None:
    """The description is one that a package index can show: headings, tables and code, nothing cut out."""
    text = published.metadata.description or ""
    html = markdown.render(text)

    assert published.metadata.description_content_type == "text/markdown"
    assert html is not None
    assert html.count("<h2") == len(re.findall(r"^## ", text, re.MULTILINE))
    assert html.count("<table") == len(re.findall(r"^\|[ :|-]+\|$", text, re.MULTILINE))
    assert html.count("<pre") == text.count("\n```") // 2
