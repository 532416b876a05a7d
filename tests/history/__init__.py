"""A history of what servers did and what clients believed, and one checker for all that was promised.

Every test that breaks something ends with it::

    with history.recording(tmp_path / "history", stage.redis) as run:
        environment = {**os.environ, **run.environment}  # worker processes call history.install() first
        ...
        with run.fault("black hole"):
            ...
        victim.kill()
        run.killed(victim.pid)
        run.check(Expectations(at_least={"grants": 500, "waits": 100, "faults": 2}, poll=1.2))

`check` prints what was counted, and raises when an invariant is violated or the run exercised too little. It
has to be called before the servers' objects are closed, since the audit stands in their logs.
"""

from .checker import Report, check
from .expectations import Expectations
from .hooks import install
from .resource import FencedResource
from .run import Run, recording

__all__ = ["Expectations", "FencedResource", "Report", "Run", "check", "install", "recording"]
