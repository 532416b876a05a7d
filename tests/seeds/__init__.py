"""Bugs to put into a copy of the package, on purpose, each of which the tests have to catch."""

from .bug import Bug, Edit
from .process import IN_PROCESS
from .scripts import IN_SCRIPTS
from .store import IN_STORE
from .worker import IN_WORKER

BUGS: tuple[Bug, ...] = (*IN_SCRIPTS, *IN_STORE, *IN_WORKER, *IN_PROCESS)

__all__ = ["BUGS", "Bug", "Edit"]
