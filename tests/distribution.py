"""The package as it is published, and environments that have it installed with no more than it asks for."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
NAME = "lock_interceptor"


def build(target: Path, *kinds: str, source: Path = ROOT) -> list[Path]:
    """Build `wheel` or `sdist` into a directory, in this order; needs no network."""
    built = []
    for kind in kinds:
        subprocess.run(  # noqa: S603 - our own interpreter
            [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)],
            cwd=source,
            check=True,
            capture_output=True,
        )
        built += target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def files_of(archive: Path) -> set[str]:
    """The files in a wheel, or in an sdist below its only directory."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as sdist:
        return {member.name.partition("/")[2] for member in sdist if member.isfile()}


def read_wheel(wheel: Path, ending: str) -> str:
    """The only text file of a wheel whose name ends like this."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(ending))
        return archive.read(name).decode()


def metadata_of(wheel: Path) -> Metadata:
    """What a wheel says of itself; an error if any of it is not as the specification has it."""
    return Metadata.from_email(read_wheel(wheel, ".dist-info/METADATA"), validate=True)


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    directory: Path

    def run(self, program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, away from the source tree."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(  # noqa: S603 - our own environment
            [str(self.directory / "bin" / program), *arguments],
            cwd=self.directory,
            env=inherited | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


def install(directory: Path, wheel: Path, *extras: str) -> Environment:
    """Make an environment that has a wheel and what it requires, as far as `extras` want it.

    What it requires comes as links to what is installed here, file by file: that takes a second and no
    network, and whatever is used without being required is not there.
    """
    venv.create(directory, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(directory / "bin" / "python")]
    quietly = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "install", *quietly, str(wheel)], check=True, capture_output=True)  # noqa: S603 - ours
    base = {"base": str(directory), "platbase": str(directory)}
    site_packages = Path(sysconfig.get_path("platlib", "venv", base))
    for name in required_by(wheel, *extras):
        _link(name, site_packages)
    return Environment(directory)


def required_by(wheel: Path, *extras: str) -> set[str]:
    """The names of all distributions that a wheel's requirements lead to."""
    direct = metadata_of(wheel).requires_dist or []
    names: set[str] = set()
    seen: set[str] = set()
    open_ones = [(requirement, extra) for requirement in direct for extra in (*extras, "")]
    while open_ones:
        requirement, extra = open_ones.pop()
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if not wanted or str(requirement) in seen:
            continue
        seen.add(str(requirement))
        names.add(canonicalize_name(requirement.name))
        further = map(Requirement, distribution(requirement.name).requires or ())
        open_ones += [(each, wanted_by) for each in further for wanted_by in (*requirement.extras, "")]
    return names


def _link(name: str, site_packages: Path) -> None:
    """Make an installed distribution available elsewhere, without its commands."""
    for file in distribution(name).files or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            link = site_packages / file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(str(file.locate())).resolve())
