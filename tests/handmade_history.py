"""Histories made by hand, for the tests of the checker: all do right unless told otherwise."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from history.audit import Row
from history.checker import Report, check
from history.client_log import Note
from history.expectations import Expectations

LEASE = 3.0
PRESENCE, KEEP = 2_000, 60_000
_EPOCH = 1_800_000_000


class Story:
    """One lock on one server; with `other` a second server that may know less."""

    def __init__(self, *, limit: int = 1, lock: str = "lock:1:{app:lock}") -> None:
        self.limit, self.lock = limit, lock
        self.time = 1000.0
        self.rows: list[Row] = []
        self.notes: list[Note] = []
        self.servers: dict[str, dict[str, float]] = {"a": {}}
        self.server = "a"
        self.replid = "a" * 40
        self._calls = 0
        self._arrivals = 0
        self.tokens: dict[str, int] = {}

    # -- what happens

    def take(self, owner: str, **tamper: Any) -> None:
        """Ask, be granted, hold it and begin to work."""
        sent = self.time
        self.grant(owner, **tamper)
        until = tamper.get("until", sent + LEASE * 0.9)
        grant = {"token": self.tokens[owner], "slot": self.slot(owner)}
        self.note("hold", owner, **grant, until=until, deadline=tamper.get("deadline", 1e9))
        if tamper.get("body", True):
            self.note("body", owner)

    def grant(self, owner: str, **tamper: Any) -> None:
        """Ask, and be granted."""
        records, ask = self.records, self._ask("acquire", owner, tamper)
        did = self._purge(tamper)
        waiter = ask["waiter"]
        did += [["-", kind + waiter] for kind in "qcpk" if kind + waiter in records]
        token = tamper.get("token", self.us)
        taken = {int(score) for name, score in records.items() if name[0] == "s" and ["-", name] not in did}
        slot = tamper.get("slot", min(set(range(99)) - taken))
        did += self._epoch()
        did += [self._put("h" + owner, self.now + ask["lease"] + tamper.get("longer", 0))]
        did += [self._put("t" + owner, token), self._put("s" + owner, slot)]
        did += [self._put("#t", -4e15 - token), self._put("#L", -4e15 - ask["lease"]), ["ttl", "600000"]]
        self.tokens[owner] = token
        self.run(ask, did, tamper, {"token": token, "slot": slot})

    def queue(self, owner: str, **tamper: Any) -> None:
        """Ask, and stand in line."""
        ask = self._ask("acquire", owner, tamper)
        waiter = ask["waiter"]
        did = self._purge(tamper) + self._epoch()
        ticket = self.records.get("q" + waiter) or self.records.get("c" + waiter, 0) - 1e13
        if ticket < 0:
            self._arrivals += 1
            ticket = ask["priority"] * 1e11 + self._arrivals
        did += [["-", "c" + waiter]] if "c" + waiter in self.records else []
        did += [self._put("q" + waiter, tamper.get("ticket", ticket))]
        did += [self._put("p" + waiter, -(self.now + PRESENCE + tamper.get("present", 0)))]
        did += [self._put("k" + waiter, -1e14 - (self.now + KEEP)), ["ttl", "600000"]]
        self.run(ask, did, tamper, {"place": 1})

    def renew(self, owner: str, **tamper: Any) -> None:
        """Renew, and believe it."""
        sent, ask = self.time, self._ask("renew", owner, tamper)
        held = "h" + owner in self.records and self.records["h" + owner] > self.now
        revived = held or tamper.get("revives")
        did = [*self._purge(tamper), *([self._put("h" + owner, self.now + ask["lease"])] if revived else [])]
        self.run(ask, did, tamper, {"yes": bool(revived)})
        if revived and tamper.get("believed", True):
            self.note("extend", owner, until=tamper.get("until", sent + LEASE * 0.9))

    def release(self, owner: str, **tamper: Any) -> None:
        """End the work and give back."""
        began = any(note.what == "body" and note.owner == owner for note in self.notes)
        if began and tamper.get("body", True):
            self.note("body_end", owner)
        self._go("release", owner, tamper)

    def leave(self, owner: str, **tamper: Any) -> None:
        """Leave the line."""
        self._go("release", owner, tamper)

    def park(self, owner: str, **tamper: Any) -> None:
        """Leave it for later."""
        ask, did = self._ask("park", owner, tamper), self._purge(tamper)
        waiter = ask["waiter"]
        ticket = self.records["q" + waiter]
        did += [["-", "q" + waiter], ["-", "p" + waiter], self._put("c" + waiter, ticket + 1e13)]
        self.run(ask, did, tamper, {"yes": True})

    def breaks_for(self, seconds: float, *, what: str = "outage", process: int = 0) -> None:
        """Something is broken for a while."""
        self.note("fault", fault=what, victim=process)
        self.time += seconds
        self.note("healed", fault=what, victim=process)

    def _go(self, op: str, owner: str, tamper: dict[str, Any]) -> None:
        ask, did = self._ask(op, owner, tamper), self._purge(tamper)
        held = "h" + owner in self.records and ["-", "h" + owner] not in did
        kinds, name = ("hts", owner) if held else ("qcpk", ask["waiter"])
        did += [["-", kind + name] for kind in kinds if kind + name in self.records]
        if tamper.get("wakes", True):
            gone = {change[1] for change in did}
            stay = {name: at for name, at in self.records.items() if name not in gone}
            line = sorted((at, name[1:]) for name, at in stay.items() if name[0] == "q")
            free = self.limit - sum(name[0] == "h" for name in stay)
            did += [["!", waiter] for _, waiter in line[: max(free, 0)]]
        self.run(ask, tamper.get("did", did), tamper, {"yes": held})

    # -- how it is told

    @property
    def records(self) -> dict[str, float]:
        """What is in the key."""
        return self.servers[self.server]

    @property
    def us(self) -> int:
        """The server's clock."""
        return int((_EPOCH + self.time) * 1e6)

    @property
    def now(self) -> int:
        """The same in ms."""
        return self.us // 1000

    def slot(self, owner: str) -> float:
        """Which slot it holds."""
        return self.records["s" + owner]

    def note(self, what: str, owner: str = "", call: str = "", **more: Any) -> None:
        """A client writes something down."""
        process = more.pop("process", 7)
        lock = self.lock if owner and what in ("call", "answer") else ""
        self.notes.append(Note(self.time, process, what, lock, owner, call, more))
        if what != "call":  # the server answers at once
            self.time += 0.001

    def run(
        self, ask: dict[str, Any], did: list[list[str]], tamper: dict[str, Any], answer: dict[str, Any]
    ) -> None:
        """A client calls, the server does it, the client hears."""
        process = tamper.get("process", 7)
        more = {name: value for name, value in ask.items() if name not in ("owner", "call")}
        name = tamper.get("name", ["app", "lock", None])
        self.note("call", ask["owner"], ask["call"], name=name, process=process, **more)
        self.do(ask, did + tamper.get("also", []), **tamper.get("row", {}))
        if tamper.get("twice"):
            self.do(ask, [])
        self.time += tamper.get("travels", 0.001)
        self.note("answer", ask["owner"], ask["call"], process=process, **tamper.get("answer", answer))

    def do(self, ask: dict[str, Any], did: list[list[str]], **more: Any) -> None:
        """The server does something."""
        records, before = self.records, len(self.records)
        known = records.get("@" + self.replid)
        content = dict(records) if before and known is None else None
        did = [["+", "#n", str(-4e15 - self.now)], *did]
        for change in did:
            if change[0] == "+":
                records[change[1]] = float(change[2])
            elif change[0] == "-":
                records.pop(change[1], None)
        row = Row(
            server=self.server, process="1", lock=self.lock, op=ask["op"], ask=ask, did=did, before=before,
            after=len(records), us=self.us, replid=self.replid, content=content,
        )  # fmt: skip
        for name, value in more.items():
            setattr(row, name, value)
        self.rows.append(row)
        self.time += 0.0001

    def fail_over(self, *, forgets: str = "") -> None:
        """Another server goes on, with what had been replicated."""
        self.server, self.replid = "b", "b" * 40
        kept = {
            name: score for name, score in self.servers["a"].items() if not forgets or name[1:] != forgets
        }
        self.servers.setdefault("b", kept)

    def check(self, expectations: Expectations | None = None, **leftovers: int) -> Report:
        """Check the story so far."""
        return check(self.rows, self.notes, expectations or Expectations(poll=1, slack=0.5), leftovers)

    def _ask(self, op: str, owner: str, tamper: dict[str, Any]) -> dict[str, Any]:
        self._calls += 1
        ask: dict[str, Any] = {"op": op, "call": f"7:{self._calls}", "owner": owner}
        ask |= {"waiter": tamper.get("waiter", f"for-{owner}"), "limit": tamper.get("limit", self.limit)}
        ask["priority"] = tamper.get("priority", 3)
        if op in ("acquire", "renew"):
            ask["lease"] = round(LEASE * 1000)
        if op == "acquire":
            ask |= {"presence": PRESENCE, "keep": KEEP}
        return ask

    def _purge(self, tamper: dict[str, Any]) -> list[list[str]]:
        did: list[list[str]] = []
        if not tamper.get("purges", True):
            return did
        for name, score in list(self.records.items()):
            if name[0] == "h" and score <= self.now:
                did += [["-", kind + name[1:]] for kind in "hts"]
            if name[0] == "p" and -score <= self.now:
                ticket = self.records["q" + name[1:]]
                did += [["-", "q" + name[1:]], ["-", name], self._put("c" + name[1:], ticket + 1e13)]
        return did

    def _epoch(self) -> list[list[str]]:
        stale = [["-", name] for name in self.records if name[0] == "@" and name[1:] != self.replid]
        return [*stale, self._put("@" + self.replid, -9e15)]

    @staticmethod
    def _put(member: str, score: float) -> list[str]:
        return ["+", member, str(float(score))]


Breaker = Callable[[Story], object]


def breaks(rule: str) -> Callable[[Breaker], Breaker]:
    """Mark a story in which this invariant is broken."""

    def mark(story: Breaker) -> Breaker:
        story.rule = rule  # type: ignore[attr-defined] - read by `broken_in`
        return story

    return mark


def broken_in(*modules: ModuleType) -> list[tuple[str, Breaker]]:
    """The marked stories of modules, with what they break."""
    found = [story for module in modules for story in vars(module).values()]
    return [(story.rule, story) for story in found if hasattr(story, "rule")]
