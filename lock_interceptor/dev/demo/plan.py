"""What the demo does: which locks there are, and which order needs which of them for how long.

Everything follows from the number of orders and the seed, so a run can be repeated.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from lock_interceptor.lease import label
from lock_interceptor.settings import LockSettings
from lock_interceptor.store import LockId

APPLICATION = "demo"
LEASE = timedelta(seconds=3)
RETRY_INTERVAL = timedelta(seconds=1)
TENANTS = ("ann", "bob", "cem", "dia")

LEDGER = "ledger"
API = "api"
TENANT = "tenant"
API_LIMIT = 3

Queue = Literal["workflows", "unlocked", "locked"]
"""Task queues: the workflows, and their activities without locks and with them. Each worker serves one."""

WORKERS = ("A", "B")
REPLACEMENT = "C"
"""The worker that is started when one of the others has been killed."""

MIN_ORDERS = 20
MAX_ORDERS = 1000


@dataclass(frozen=True, slots=True)
class Lock:
    """One lock of the demo."""

    name: str
    limit: int
    key: str | None = None

    @property
    def label(self) -> str:
        """As people read it, and as leases name it."""
        return label(self.name, self.key)

    @property
    def id(self) -> LockId:
        """As the store knows it."""
        return LockId(APPLICATION, self.name, self.key)


LOCKS = (Lock(LEDGER, 1), Lock(API, API_LIMIT), *(Lock(TENANT, 1, tenant) for tenant in TENANTS))


@dataclass(frozen=True, slots=True)
class Order:
    """What one workflow, and its one activity, are given."""

    id: str
    """The workflow's id."""
    activity: str
    tenant: str
    seconds: float
    """How long the body works."""
    queue: Queue
    """Where the activity runs."""


# activity, share of the orders, and how many seconds its busiest lock is held in all
_KINDS = (("post_to_ledger", 0.25, 10.0), ("call_api", 0.45, 10.0), ("update_tenant", 0.30, 7.0))
_SHORTEST, _LONGEST = 0.15, 0.5
"""Mean seconds of a body; shorter ones would end before Temporal brings the next, and no line would form."""


def make_orders(count: int, seed: int, *, locked: bool) -> list[Order]:
    """The orders of a run; with and without locks they differ in nothing but their ids and their queue.

    The more there are, the shorter each one takes within bounds, so that more of them hardly take longer.
    """
    chance = random.Random(seed)  # noqa: S311 - spreads work, hides nothing
    kinds = [kind for kind, share, _ in _KINDS for _ in range(round(share * count))]
    kinds = (kinds + [_KINDS[1][0]] * count)[:count]
    chance.shuffle(kinds)
    slots = {"post_to_ledger": 1, "call_api": API_LIMIT, "update_tenant": len(TENANTS)}
    mean = {kind: total * slots[kind] / max(kinds.count(kind), 1) for kind, _, total in _KINDS}
    prefix: str = "order" if locked else "unlocked"
    queue: Queue = "locked" if locked else "unlocked"
    orders = []
    for number, kind in enumerate(kinds, start=1):
        seconds = min(max(mean[kind], _SHORTEST), _LONGEST) * chance.uniform(0.6, 1.4)
        orders.append(
            Order(f"{prefix}-{number:03}", kind, chance.choice(TENANTS), round(seconds, 3), queue),
        )
    return orders


def demo_settings(redis_url: str, *, disabled: bool = False) -> LockSettings:
    """Settings that owe nothing to the environment, which may be set up for something else."""
    values = {
        name: field.get_default(call_default_factory=True)
        for name, field in LockSettings.model_fields.items()
    }
    values |= {
        "application_name": APPLICATION,
        "redis_url": redis_url,
        "lease": LEASE,
        "retry_interval": RETRY_INTERVAL,
        "disabled": disabled,
    }
    return LockSettings(**values)
