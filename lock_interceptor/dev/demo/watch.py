"""Follows a run while it goes on: shows it, kills a worker, and sees when its slots are back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from lock_interceptor.dev.demo.crew import Crew, Member
from lock_interceptor.dev.demo.journal import now
from lock_interceptor.dev.demo.plan import LEASE, LOCKS, REPLACEMENT, Lock
from lock_interceptor.dev.demo.record import DeadSlot, Kill, Record
from lock_interceptor.dev.demo.view import Snapshot, View, Worker
from lock_interceptor.store import LockState, LockStore

_EVERY = 0.1
_SHOWN_WAITERS = 3
_PATIENCE = LEASE.total_seconds() + 3.0
"""Seconds after the kill in which each of the dead worker's slots has to be back, or counts as never."""


class Watch:
    """Follows the run with locks."""

    def __init__(self, crew: Crew, store: LockStore, record: Record, view: View, *, total: int) -> None:
        self._crew = crew
        self._store = store
        self._record = record
        self._view = view
        self._total = total
        self.began = min(record.ready.values())
        self.kill: Kill | None = None

    async def follow(self, work: asyncio.Task[None]) -> None:
        """Until all is done and the dead worker's slots are back.

        Raises:
            DemoError: a worker ended that was not killed.
        """
        while not (work.done() and self._slots_are_settled()):
            self._crew.read()
            states = await self._look()
            if self.kill is None:
                await self._maybe_kill()
            self._show(states)
            await asyncio.sleep(_EVERY)
        self._crew.read()
        self._show(await self._look())

    async def _look(self) -> dict[Lock, LockState]:
        looks = [self._store.inspect(lock.id, waiters=_SHOWN_WAITERS) for lock in LOCKS]
        states = dict(zip(LOCKS, await asyncio.gather(*looks), strict=True))
        self._note_what_is_back(states)
        return states

    async def _maybe_kill(self) -> None:
        """In the middle of the work, while the victim holds several slots, or at least one."""
        done = len(self._record.done())
        if done < self._total / 3:
            return
        holding = 2 if done < self._total / 2 else 1
        for victim in self._crew.victims():
            at = self._crew.kill(victim, holding=holding)
            if at is not None:
                await self._after_kill(victim, at)
                return

    async def _after_kill(self, victim: Member, at: float) -> None:
        slots: list[DeadSlot] = []
        for lock in LOCKS:
            asked = now()
            state = await self._store.inspect(lock.id, waiters=0)
            slots.extend(
                DeadSlot(
                    lock=lock.label,
                    slot=holder.slot,
                    token=holder.token,
                    lease_end=asked + holder.lease_left.total_seconds(),
                )
                for holder in state.holders
                if holder.party.worker.startswith(f"{victim.pid}@")
            )
        self.kill = Kill(worker=victim.name, pid=victim.pid, at=at, slots=tuple(slots))
        held = ", ".join(f"{slot.lock} slot {slot.slot}" for slot in slots)
        self._say(f"SIGKILL to worker {victim.name} (pid {victim.pid}), which held {held or 'nothing'}")
        member = self._crew.start(REPLACEMENT, self._record, "locked")
        self._say(f"worker {member.name} (pid {member.pid}) started in its place")

    def _note_what_is_back(self, states: Mapping[Lock, LockState]) -> None:
        """By what the server shows, or by a grant to somebody else, whichever came first."""
        if self.kill is None:
            return
        held = {(lock.label, holder.token) for lock, state in states.items() for holder in state.holders}
        for slot in self.kill.slots:
            if slot.back is None and (slot.lock, slot.token) not in held:
                slot.back = min(self._next_start(slot, self.kill.at), now())
                self._say(
                    f"{slot.lock} slot {slot.slot} is back, {slot.back - self.kill.at:.1f} s after the kill"
                )

    def _next_start(self, slot: DeadSlot, after: float) -> float:
        starts = (
            execution.start
            for execution in self._record.executions
            if (execution.lock, execution.slot) == (slot.lock, slot.slot) and execution.start > after
        )
        return min(starts, default=float("inf"))

    def _slots_are_settled(self) -> bool:
        if self.kill is None:
            return True
        return now() > self.kill.at + _PATIENCE or all(slot.back is not None for slot in self.kill.slots)

    def _say(self, text: str) -> None:
        self._view.say(text, now() - self.began)

    def _show(self, states: Mapping[Lock, LockState]) -> None:
        workers = [
            Worker(member.name, member.pid, len(self._record.running(member.name)), member.killed)
            for member in self._crew.members
            if member.record is self._record
        ]
        self._view.show(
            Snapshot(
                seconds=now() - self.began,
                done=len(self._record.done()),
                total=self._total,
                states=states,
                workers=workers,
            )
        )
