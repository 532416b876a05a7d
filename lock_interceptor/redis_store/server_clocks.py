"""Notices when the clock of a Redis server steps forward: leases end before their holders know.

Steps back are absorbed by the scripts.
"""

from __future__ import annotations

from lock_interceptor import telemetry
from lock_interceptor.lease import clock

TOLERANCE = 0.5
"""Seconds that are no step."""
DRIFT = 0.02
"""Part of the time in which two clocks may run apart."""


class ServerClocks:
    """What the clocks of the servers said, against the one of this machine."""

    def __init__(self) -> None:
        self.steps = 0
        """Steps forward that were noticed so far."""
        self._last: dict[str, tuple[float, float]] = {}

    def heard(self, server: str, server_ms: int, sent: float) -> bool:
        """Take note of what a server's clock said at some time between `sent`, by `clock`, and now.

        It is a step, and this True, if more time has passed there than can have passed here.
        """
        before, last = self._last.get(server), (server_ms / 1000, sent)
        self._last[server] = last
        if before is None:
            return False
        passed_there, passed_here = last[0] - before[0], clock() - before[1]
        stepped = passed_there > passed_here * (1 + DRIFT) + TOLERANCE
        if stepped:
            self.steps += 1
            telemetry.clock_stepped(server, passed_there - passed_here, self.steps)
        return stepped
