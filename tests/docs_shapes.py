"""What output looks like, line by line. `test_docs.py` holds both real output and recordings to it."""

import re
from functools import cache

from docs_blocks import ROOT

_TIME = r"~?\d+(\.\d+)? (ms|s|min|h|d)( \d+ (s|min|h))?"
_LABEL = r"\S+"
_WHO = r"(workflow \S+( \(\w+\))?, )?activity \S+ \(\d+\), attempt \d+(, worker \S+)?"
_RULE = r" ?─+ ?"
_WRAPPED = r" {9,}\S.*"
_HELD = r"\d+( of \d+)?"

LISTED = [
    r" ?( application +)?lock +held +waiting +parked +oldest wait +longest hold ?",
    _RULE,
    rf" ?( \S+ +)?{_LABEL} +{_HELD} +\d+ +\d+ +(-|{_TIME}) +(-|{_TIME}) ?",
    r"[\d,]+ locks?( named \S+)? in use in \w+ (application|\S+)(, and .* idle)?: .* waiting.*",
]
SHOWN = [
    rf"{_LABEL}  in \S+",
    rf"{_HELD} held, [\d,]+ waiting \([\d,]+ of them hot\)(; a holder usually takes {_TIME})?",
    r" slot +token +since +lease left +held by *",
    r" place +expected +state +waiting *",
    _RULE,
    rf" +\d+ +\d{{16}} +{_TIME} +{_TIME} +(unknown|workflow .*|activity .*)",
    rf" +\d+ +(-|{_TIME}) +(hot|parked) +(unknown|workflow .*|activity .*)",
    _WRAPPED,
    rf"Nothing is granted for another {_TIME}: Redis has failed over or begun anew, and may have forgotten a",
    r"holder\.",
    r"[\d,]+ more in line; --waiters shows them",
]
WATCHED = [
    rf"\d\d:\d\d:\d\d  [\d,]+ locks?, [\d,]+ held, [\d,]+ waiting(: {_LABEL} {_HELD} held \d+ waiting.*)?",
]
RELEASED = [
    rf"released: slot \d+ of {_LABEL} is free, \d+ waiting",
    rf"{_LABEL}, slot \d+, held for {_TIME} by",
    rf"  {_WHO}",
    r"Its slot is free at once, and the next in line takes it\..*",
    r"(within a third of its lease|ignores being stopped|or stuck\. A dead worker's lease).*",
    r"Release it\? \[y/N\]: ?[yn]?",
    rf"  slot \d+, token \d+, for {_TIME}: {_WHO}",
]
ENDED = [r"lock-interceptor: .+"]
"""How any command ends that cannot do what it was asked."""


@cache
def _examined() -> list[str]:
    """The doctor's lines; what it checks stands in its source."""
    sources = (ROOT / "lock_interceptor" / "redis_store" / "checkup").glob("*.py")
    checks = {name for path in sources for name in re.findall(r'"([a-z]+)"', path.read_text("utf-8"))}
    return [
        rf"(ok|warning|PROBLEM|unknown) +({'|'.join(sorted(checks | {'settings'}))}): .+",
        r" +→ .+",
        r" {4,}\S.*",
        r"all is well",
        r"(no problem, )?\d+ (that keeps locks from working well|to look at|could not be checked)(, \d+ .*)*",
    ]


def shapes_of(command: str) -> list[str] | None:
    """What lines of this sub-command's output look like; None if nothing is known of them."""
    known = {"list": LISTED, "show": SHOWN, "watch": WATCHED, "release": RELEASED}
    if command == "doctor":
        return _examined() + ENDED
    return known[command] + ENDED if command in known else None


def odd_lines(output: str, shapes: list[str]) -> list[str]:
    """The lines that look like none of these."""
    shape = re.compile("|".join(f"(?:{each})" for each in shapes))
    lines = [line.rstrip() for line in output.splitlines()]
    return [line for line in lines if line and not shape.fullmatch(line)]


_WORDS = r"[\w-]+( \S+)*"
TEXTS = {
    "a server's configuration": [r"# (redis|sentinel)\.conf(, .*)?", _WORDS],
    "rules for a Redis user": [
        r"# .*|ACL SETUSER locks( (on|>\w+|[~&]\S+|-@all|\+[\w|]+))+",
        r"   ( \+[\w|]+)+",
    ],
    "log lines": [
        r"(\d\d:\d\d:\d\d )?\[(debug|info|warning|error) +\] lock\.\w+ +(\w+=.*)",
        r" {10,}\S.*",
    ],
    "a failure as Temporal shows it": [r"Lock\w+: lock \S+: .*", r"workflow \S+, activity .*"],
    "the demo's lines": [
        r" +\d+\.\d s +SIGKILL to worker [A-Z] \(pid \d+\), which held .*",
        r" +\d+\.\d s +worker [A-Z] \(pid \d+\) started in its place",
        rf" +\d+\.\d s +{_LABEL} slot \d is back, \d+\.\d s after the kill",
    ],
    "what the program on the page prints": [r"order \d+ picked in \w+ with token \d{16}"],
    "modules of the package": [r"lock_interceptor/", r"  [\w./ ]+ {2,}\S.*"],
    "code of another project": [r"@activity\.defn", r"@?[\w. ]+(\(.*\))?( -> \w+: \.\.\.)?"],
}
"""What a block without a command may be, and what its lines look like, the first of them at least."""


def recognised(text: str) -> str | None:
    """Which of `TEXTS` this is."""
    first = text.partition("\n")[0]
    for kind, shapes in TEXTS.items():
        if not odd_lines(first, shapes[:1]) and not odd_lines(text, shapes):
            return kind
    return None
