"""What has to be on replicas before it counts, by profile (``LOCK_DURABILITY``).

primary   nothing: what the primary says counts
failover  a grant waits for one replica; if none confirms it counts all the same, with a warning
strict    a grant and a renewal count only when all replicas have confirmed them

``WAIT`` counts replicas but cannot say which, so "all" means every one that may be promoted, the one that is
away too. Who promotes knows them: Sentinel, or the Cluster. With neither nobody promotes by himself, and the
most that were ever seen connected have to do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from lock_interceptor import telemetry
from lock_interceptor.errors import LockConfigurationError, LockStoreUnavailable
from lock_interceptor.settings import Durability, LockSettings

Kind = Literal["grant", "renewal", "other"]
SHORT_WAIT_MS = 100
"""Once no replica has confirmed in time, the next grants wait for one no longer than this."""


@dataclass(slots=True)
class Replicas:
    """The replicas of one primary: how many there are, and how many have to confirm what."""

    profile: Durability
    where: str
    """Names the server for messages."""
    known: int | None = None
    """As many as may be promoted, if there is somebody who tells."""
    asked: float = -math.inf
    """When that was asked, by the monotonic clock."""
    connected: int | None = None
    """Connected when last heard of."""
    most_connected: int = 0
    short: bool = False

    def needed(self, kind: Kind) -> int:
        """Replicas that have to confirm it."""
        if self.profile == "strict" and kind != "other":
            all_of_them = self.most_connected if self.known is None else max(self.known, self.connected or 0)
            return max(all_of_them, 1)
        return int(self.profile == "failover" and kind == "grant")

    def to_wait_for(self, kind: Kind) -> int:
        """Replicas to wait for: a grant that cannot be confirmed by enough need not wait in vain.

        Its answer tells how many there are by then; that of a renewal does not.
        """
        needed = self.needed(kind)
        return needed if self.connected is None or kind == "renewal" else min(needed, self.connected)

    def patience_ms(self, most: int) -> int:
        """How long to wait for them: a hung replica must not slow down every grant."""
        return min(most, SHORT_WAIT_MS) if self.short else most

    def heard(self, connected: int) -> None:
        """Take note of how many are connected; -1 if nobody knows."""
        self.connected = connected if connected >= 0 else None
        self.most_connected = max(self.most_connected, connected)

    def check(self, kind: Kind, confirmed: int) -> None:
        """Judge an answer by how many replicas have confirmed it.

        Raises:
            LockStoreUnavailable: too few have, and the profile is ``strict``.
        """
        needed = self.needed(kind)
        if self.profile == "strict":
            if confirmed < needed:
                raise LockStoreUnavailable(
                    f"Redis at {self.where}: {confirmed} of {needed} replicas have confirmed the {kind}, and "
                    "LOCK_DURABILITY is strict"
                )
        elif needed:
            was_short, self.short = self.short, confirmed < needed
            if self.short and not was_short:
                telemetry.not_replicated(self.where)


@dataclass(slots=True)
class Confirmations:
    """The profile, and the replicas of each primary: in a Cluster there are several."""

    profile: Durability
    where: str
    replicated: bool
    """Somebody promotes a replica when the primary fails."""
    _by_primary: dict[str, Replicas] = field(default_factory=dict)
    _said_info_forbidden: bool = False

    @classmethod
    def by_settings(cls, settings: LockSettings, where: str) -> Confirmations:
        """The profile that is set, or the one that suits the kind of Redis."""
        replicated = bool(settings.redis_sentinel_hosts) or settings.redis_cluster
        return cls(settings.durability or ("failover" if replicated else "primary"), where, replicated)

    def asked_for(self, kind: Kind) -> bool:
        """Whether replicas have to confirm it at all."""
        return Replicas(self.profile, self.where).needed(kind) > 0

    def of(self, primary: str) -> Replicas:
        """The replicas of the primary with this name; empty when there is only one primary."""
        if primary not in self._by_primary:
            self._by_primary[primary] = Replicas(self.profile, primary or self.where)
        return self._by_primary[primary]

    def info_forbidden(self) -> None:
        """The server does not tell this user how many replicas there are, nor that a primary is new.

        Raises:
            LockConfigurationError: the profile cannot be kept like that.
        """
        if self.profile == "strict" and not self.replicated:
            raise LockConfigurationError(
                f"LOCK_DURABILITY is strict, and the Redis user may not use INFO at {self.where}: nobody "
                "tells how many replicas have to confirm a lock"
            )
        if not self._said_info_forbidden:
            self._said_info_forbidden = True
            telemetry.info_forbidden(self.where, _WITHOUT_INFO[self.profile])

    def bare_primaries(self) -> tuple[str, ...]:
        """The primaries that were heard to have no replica, and for which nobody knows of one."""
        return tuple(
            each.where for each in self._by_primary.values() if each.connected == 0 and not each.known
        )

    def refuse(self, bare: tuple[str, ...]) -> None:
        """Say at the start that ``strict`` would never grant a lock, however long one waited.

        Raises:
            LockConfigurationError: the profile is ``strict``, and there are primaries without a replica.
        """
        if self.profile == "strict" and bare:
            raise LockConfigurationError(
                f"LOCK_DURABILITY is strict, but Redis at {', '.join(bare)} has no replica, so no lock would "
                "ever be granted: give it one, or choose primary or failover"
            )


_WITHOUT_INFO = {
    "primary": "a failover or restart goes unnoticed: what it has forgotten is granted again at once",
    "failover": (
        "a failover or restart goes unnoticed: the renewals and unconfirmed grants that it has forgotten do "
        "not keep others out, and only a replica's confirmation of each grant is left"
    ),
    "strict": (
        "a failover or restart goes unnoticed, and replicas count by what Sentinel or the Cluster knows alone"
    ),
}
