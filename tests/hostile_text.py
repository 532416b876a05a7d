"""Names that somebody may choose to reach what is not theirs."""

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

PIECES = [
    *"{}:%~|#@*?[]\\\"'\x00\r\n\t\x1b\x7f\x9b /.,-_ahqtpkcswi01",
    "%7E",
    "%3A",
    "%257E",
    ":wake",
    "lock:1:{",
    "#t",
    "#q",
    "@0123",
    "h1",
    "i1|{}",
    "\x1b[2J\x1b]0;title\x07",
    "\r\n+OK\r\n*1\r\n$8\r\nFLUSHALL\r\n",
    "]] redis.call('FLUSHALL') --[[",
    "%d%s",
    "é",
    "e\u0301",  # looks like the one before
    "а",  # noqa: RUF001 - a Cyrillic letter that looks like a Latin one
    "：",  # noqa: RUF001 - a colon of double width
    "\u202e",  # from here on from right to left
    "\u2028",
    "🔒",
    "x" * 200,
    "x" * 201,
    "ü" * 300,
    "y" * 10_000,
]
hostile = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
"""Texts made of what means something somewhere, so that they often come close to each other."""
anything = hostile | st.text(min_size=1, max_size=300)

quiet = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck), max_examples=200
)
# to make a failing example smaller takes minutes where each one takes servers
on_servers = settings(quiet, max_examples=40, phases=[Phase.explicit, Phase.generate])
