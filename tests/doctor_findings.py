"""What the doctor found, to be asked for by check and level."""

from operator_cli import Ended, Operator

Found = dict[str, list[dict[str, str]]]
"""Findings by level."""


def examined(operator: Operator, status: int) -> Found:
    """Let the doctor look, expect the exit status, and return what it found."""
    ended = operator.runs("doctor", "--json")
    assert ended.status == status, ended.out + ended.err
    assert ended.err == ""
    return by_level(ended)


def by_level(ended: Ended) -> Found:
    """The findings of a run with ``--json``."""
    found: Found = {"ok": [], "warning": [], "problem": [], "unknown": []}
    for finding in ended.json["findings"]:
        found[finding["level"]].append(finding)
        assert finding["remedy"] or finding["level"] == "ok" or ":" in finding["message"], finding
    return found


def checks(findings: list[dict[str, str]]) -> list[str]:
    """What they are about."""
    return [finding["check"] for finding in findings]


def only(findings: list[dict[str, str]], check: str) -> dict[str, str]:
    """The single one about this."""
    (finding,) = (finding for finding in findings if finding["check"] == check)
    return finding
