"""Whether a command line that the documentation shows would be understood. Nothing is run."""

import re
import shlex
import tomllib

import typer
from docs_blocks import ROOT, Block, blocks

from lock_interceptor.ops.commands import app

_COMMANDS = getattr(typer.main.get_command(app), "commands")  # noqa: B009 - of a group, which its type does not say
_SEPARATORS = {"|", "||", "&&", "&", ";"}
_OTHERS = {".", "cat", "cd", "export", "git", "jq", "kubectl", "pytest", "redis-cli", "sleep", "temporal"}
"""Commands that are none of ours, so nothing is known of their options."""
_METADATA = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
_TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def simple_commands(line: str) -> list[list[str]]:
    """What a shell would run for this line, one command after the other, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    words = iter(lexer)
    for word in words:
        if word in _SEPARATORS:
            found.append([])
        elif word.startswith((">", "<")):
            next(words, None)
        else:
            found[-1].append(word)
    commands = [_without_variables(words) for words in found]
    return [words for words in commands if words]


def _without_variables(words: list[str]) -> list[str]:
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    return words


def command_lines(block: Block) -> list[str]:
    """The lines of a block that somebody types: all of a script, of a recording those behind ``$``."""
    text = block.text.replace("\\\n", " ")
    lines = text.splitlines()
    if block.kind != "sh":
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line for line in lines if line.strip()]


def problem_of(words: list[str], block: Block) -> str | None:
    """Why this command would not be understood; None if it would."""
    command, arguments = words[0], words[1:]
    if command == "lock-interceptor":
        return _of_ours(arguments)
    if command == "make":
        targets = [each for each in arguments if "=" not in each and not each.startswith("-")]
        return next((f"there is no target {each}" for each in targets if each not in _TARGETS), None)
    if command in ("python", "python3"):
        return _of_python(arguments, block)
    if command == "pip":
        return _of_pip(arguments)
    return None if command in _OTHERS else f"nobody has said what {command} is"


def _of_ours(arguments: list[str]) -> str | None:
    if arguments in (["--help"], ["--version"]):
        return None
    command = _COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        return f"there is no command {arguments[:1]}"
    if "--help" in arguments:
        return None
    try:
        command.make_context(arguments[0], arguments[1:])
    except Exception as error:  # typer has its own kinds, and the name of their base has changed
        return str(error) or type(error).__name__
    return None


def _of_python(arguments: list[str], block: Block) -> str | None:
    script = arguments[0] if arguments else ""
    if script == "-m":
        return None
    told = f"`{script}`" in block.page.read_text("utf-8")
    program = any(each.kind == "python" and "__main__" in each.text for each in blocks(block.page))
    if (ROOT / script).is_file() or (told and program):
        return None
    return f"there is no {script}"


def _of_pip(arguments: list[str]) -> str | None:
    extras = set(_METADATA["project"]["optional-dependencies"])
    for word in arguments:
        if found := re.match(r"lock-interceptor\[([\w,]+)\]", word):
            unknown = set(found[1].split(",")) - extras
            if unknown:
                return f"there is no extra {', '.join(sorted(unknown))}"
    return None
