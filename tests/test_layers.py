"""The house of the package: imports point down, and each foreign thing comes in through one door."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lock_interceptor

ROOT = Path(lock_interceptor.__file__).parent
PACKAGE = "lock_interceptor"

FLOORS = (
    ("errors", "harmless", "places"),
    ("spec", "lease", "room", "metrics", "tracing"),
    ("marker", "settings", "store"),
    ("telemetry",),
    ("redis_store", "waiting", "hold", "loop_thread"),
    ("renewing", "conflict"),
    ("watchdog",),
    ("keeper",),
    ("terms",),
    ("pausing",),
    ("request",),
    ("acquisition",),
    ("guard",),
    ("worker",),
    ("dev", "testing"),
    ("ops",),
    ("__main__",),
)
"""From the ground up. A module or package may use itself and the floors below, but no neighbour."""

FLOOR_OF = {name: number for number, names in enumerate(FLOORS) for name in names}

DOORS = {
    "redis": {"redis_store"},
    "pydantic": {"settings"},
    "pydantic_settings": {"settings"},
    # the demo and its kin, and the kit for users' tests, run activities like any other application
    "temporalio.worker": {"worker", "dev", "testing"},
    "temporalio.testing": {"testing"},
    "pytest": {"testing"},
    "typer": {"ops"},
    "rich": {"ops", "dev"},
}
"""Who may import what; anybody may import what is not named."""

ENVIRONMENT = ("environ", "environb", "getenv", "getenvb")

MODULES = sorted(ROOT.rglob("*.py"))


@dataclass(frozen=True)
class Import:
    """One imported module, and the names taken from it."""

    module: str
    names: tuple[str, ...] = ()

    def modules(self) -> Iterator[str]:
        """All that this may import: ``from a import b`` is ``a`` or ``a.b``."""
        yield self.module
        yield from (f"{self.module}.{name}" for name in self.names)


def imports(path: Path) -> Iterator[Import]:
    """All imports of a module, the ones in functions and under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            yield Import(node.module or "", tuple(alias.name for alias in node.names))


def home(path: Path) -> str:
    """The module or package at the top of ours that a file belongs to; empty for the package itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


def target(found: Import) -> set[str]:
    """Which of our own modules or packages, at the top, an import needs; empty for the package itself."""
    if found.module == PACKAGE:
        return {name if importlib.util.find_spec(f"{PACKAGE}.{name}") else "" for name in found.names} or {""}
    if found.module.startswith(f"{PACKAGE}."):
        return {found.module.split(".")[1]}
    return set()


def test_imports_point_down() -> None:
    """A module knows those below it only, so a floor can be read and tested without the ones above."""
    wrong = []
    for path in MODULES:
        own = home(path)
        if own == "":  # the package itself names what is public
            continue
        assert own in FLOOR_OF, f"say on which floor {own} stands"
        for used in {used for found in imports(path) for used in target(found)} - {own}:
            # applications of the package come in by the front door, as users do
            down = FLOOR_OF[own] >= FLOOR_OF["dev"] if used == "" else FLOOR_OF[used] < FLOOR_OF[own]
            if not down:
                wrong.append(f"{path.relative_to(ROOT)} imports {used or PACKAGE}")
    assert wrong == []


def test_foreign_things_come_in_by_one_door() -> None:
    """Who changes the client of Redis, the SDK's workers or the settings finds all of it in one place."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in MODULES
        for found in imports(path)
        for module in found.modules()
        for foreign, allowed in DOORS.items()
        if (module == foreign or module.startswith(f"{foreign}.")) and home(path) not in allowed
    ]
    assert wrong == []


def test_ground_floor_needs_the_standard_library_only() -> None:
    """What activity modules import loads fast, and inside of the workflow sandbox."""
    foreign = {
        found.module.split(".")[0]
        for name in ("errors", "spec", "lease", "marker")
        for found in imports(ROOT / f"{name}.py")
    }
    assert foreign - {PACKAGE} - sys.stdlib_module_names == set()


def test_environment_is_read_in_settings_only() -> None:
    """One module reads variables, so its list is complete.

    Tools for developers and operators may pass their own environment on to the processes that they start.
    """
    reads = {
        home(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT)
        or (isinstance(node, ast.alias) and node.name in ENVIRONMENT)
    }
    assert reads - {"dev", "ops"} == {"settings"}


def test_modules_are_short() -> None:
    """Nothing is too long to be read in one sitting.

    A file ends where its topic ends, which is before 400 lines of Python. An ``__init__`` says what there is,
    in 80 lines at most. A script blocks the server while it runs and has to be understood whole: 130 with its
    header.
    """
    long = {}
    for path in [*MODULES, *ROOT.rglob("*.lua")]:
        limit = 130 if path.suffix == ".lua" else 80 if path.name == "__init__.py" else 400
        lines = len(path.read_text().splitlines())
        if lines > limit:
            long[str(path.relative_to(ROOT))] = lines
    assert long == {}
