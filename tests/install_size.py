"""Prints how much the package adds to an installation, and to the start of a process.

    python tests/install_size.py

Measured in an environment that has the wheel and what it requires, and nothing else.
"""

import json
import statistics
import tempfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

from distribution import Environment, build, install, required_by

RUNS = 9
ONE_IMPORT = """
import json, sys, time
{before}
modules, started = len(sys.modules), time.perf_counter()
{what}
print(json.dumps([1000 * (time.perf_counter() - started), len(sys.modules) - modules]))
"""
BARE, SDK = "pass", "import temporalio.activity, temporalio.workflow"
STEPS = (
    ("temporalio.activity and .workflow", BARE, SDK),
    ("lock_interceptor, after that", SDK, "import lock_interceptor"),
    (
        "LockInterceptor, in a worker",
        f"{SDK}, temporalio.worker, lock_interceptor",
        "from lock_interceptor import LockInterceptor",
    ),
)


def size_of(name: str) -> int:
    """Bytes of an installed distribution, without what Python compiles."""
    files = [Path(str(file.locate())) for file in distribution(name).files or () if file.suffix != ".pyc"]
    return sum(file.stat().st_size for file in files if file.is_file())


def unpacked(wheel: Path) -> int:
    """Bytes of what is in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return sum(file.file_size for file in archive.infolist())


def time_of(environment: Environment, before: str, what: str) -> tuple[float, int]:
    """Milliseconds that an import takes in a fresh process, the median of several; and its modules."""
    code = ONE_IMPORT.format(before=before, what=what)
    environment.run("python", "-c", code)  # compiles
    runs = [json.loads(environment.run("python", "-c", code).stdout) for _ in range(RUNS)]
    return statistics.median(milliseconds for milliseconds, _ in runs), runs[0][1]


def show(what: str, size: int) -> None:
    """Print a size."""
    print(f"{what:36} {size / 1e6:8.2f} MB")


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as scratch:
        (wheel,) = build(Path(scratch, "dist"), "wheel")
        needed = {name: size_of(name) for name in required_by(wheel)}
        with_cli = {name: size_of(name) for name in required_by(wheel, "cli")}
        own = unpacked(wheel)
        show("wheel", wheel.stat().st_size)
        show("the package, installed", own)
        show(f"... with its {len(needed)} libraries", own + sum(needed.values()))
        show(f"... with the {len(with_cli)} of [cli]", own + sum(with_cli.values()))
        for name in sorted(needed, key=needed.__getitem__, reverse=True)[:3]:
            show(f"    {name}", needed[name])
        print(f"\nimport, the median of {RUNS} fresh processes")
        environment = install(Path(scratch, "environment"), wheel)
        for name, before, what in STEPS:
            milliseconds, modules = time_of(environment, before, what)
            print(f"{name:36} {milliseconds:8.1f} ms   {modules:4} modules")


if __name__ == "__main__":
    main()
