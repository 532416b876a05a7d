"""The README's quick start, as a program to run."""

import re
from pathlib import Path

from documented import section

README = Path(__file__).parent.parent / "README.md"
PRINTS = "order 1 picked in north at seat 0"


def quick_start(address: str) -> str:
    """The program, with the address of the Temporal server that there is."""
    code = re.search(r"```python\n(.*?)```", section(README.read_text("utf-8"), "Quick start"), re.DOTALL)
    assert code is not None
    return code[1].replace("localhost:7233", address)
