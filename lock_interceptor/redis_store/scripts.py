"""The Lua scripts: read from their files once, named by digest, each with the common heads in front."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib.resources import files

HEADS = ("common", "line")


@dataclass(frozen=True, slots=True)
class Script:
    """A script as Redis gets it."""

    name: str
    text: str
    digest: str


@functools.cache
def load(name: str) -> Script:
    """Read ``scripts/<name>.lua``. Its first line, the shebang with the flags, has to stay the first."""
    folder = files("lock_interceptor.redis_store") / "scripts"
    shebang, _, body = (folder / f"{name}.lua").read_text("utf-8").partition("\n")
    heads = [(folder / f"{head}.lua").read_text("utf-8") for head in HEADS]
    text = "\n".join([shebang, *heads, body])
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


@functools.cache
def marked(script: Script) -> Script:
    """The same script with one more argument, the first, that comes back with the answer: {mark, answer}.

    So an answer cannot be taken for that of another request, whatever gets lost on the way.
    """
    shebang, _, body = script.text.partition("\n")
    text = (
        f"{shebang}\nlocal mark = table.remove(ARGV, 1)\nlocal function script()\n{body}\nend\n"
        "return {mark, script()}\n"
    )
    return Script(script.name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
