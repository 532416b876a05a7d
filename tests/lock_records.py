"""What may stand in a lock's sorted set, told independently of the scripts that write it."""

import math
from collections.abc import Mapping

# from (included) and to (excluded), by the kind of member
BANDS: dict[str, list[tuple[float, float]]] = {
    "h": [(1e12, 1e13)],
    "t": [(1e15, 4e15)],
    "s": [(0, 1e6)],
    "q": [(1e11, 1e12)],
    "c": [(1e13 + 1e11, 1e13 + 1e12)],
    "w": [(3e13 + 1e11, 3e13 + 1e12)],
    "p": [(-1e13 + 1, -1e12 + 1)],
    "k": [(-1.1e14 + 1, -1.01e14 + 1)],
    "i": [(2e13 + 1e11, 2e13 + 1e12), (5e15, 8e15)],
    "#": [(-8e15 + 1, -4e15 + 1)],
    "@": [(-9e15, -9e15 + 1)],
}


def all_bands() -> list[tuple[float, float]]:
    """Every band, in order."""
    return sorted(band for bands in BANDS.values() for band in bands)


def is_exact(value: float) -> bool:
    """Whether a score of this size is a whole number that a double can hold."""
    return math.isfinite(value) and abs(value) < 2**53


def faults(members: Mapping[str, int]) -> list[str]:
    """What is wrong with the content of a lock's key; nothing if all is well."""
    found = [
        f"{member} has no business at {score}"
        for member, score in members.items()
        if not any(low <= score < high for low, high in BANDS.get(member[0], []))
    ]
    kinds: dict[str, dict[str, int]] = {kind: {} for kind in BANDS}
    for member, score in members.items():
        kinds.setdefault(member[0], {})[member[1:]] = score
    return found + _strays(kinds) + _doubles(kinds)


def _strays(kinds: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Records without the one that they belong to, or the other way round."""
    holders, present, parked = (set(kinds[kind]) for kind in "hqc")
    described = sorted(member.partition("|")[0].partition(":")[0] for member in kinds["i"])
    wanted = {"t": holders, "s": holders, "p": present, "k": present | parked}
    found = [
        f"{kind}: {sorted(kinds[kind])} where {sorted(owners)} belong"
        for kind, owners in wanted.items()
        if set(kinds[kind]) != owners
    ]
    if described != sorted([*holders, *present, *parked]):
        found.append(f"i: {described} where {sorted([*holders, *present, *parked])} belong")
    if not set(kinds["w"]) <= holders:
        found.append(f"w: {sorted(kinds['w'])} where {sorted(holders)} belong")
    return found


def _doubles(kinds: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What may be there only once."""
    found = [
        f"{kind}: one score twice" for kind in "tsqc" if len(set(kinds[kind].values())) != len(kinds[kind])
    ]
    if kinds["q"].keys() & kinds["c"].keys():
        found.append("a waiter both present and parked")
    if len(kinds["@"]) > 1:
        found.append("more than one epoch")
    return found
