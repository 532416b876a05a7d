"""The Lua scripts as the server gets them: headers, digests, flags, and what they need of the server."""

import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path

import pytest
from servers import command, redis_binaries
from store_cases import Bench, RedisBench, store_on
from virtual_time import Clock

from lock_interceptor.dev import RedisServer
from lock_interceptor.errors import LockStoreUnavailable
from lock_interceptor.redis_store import scripts
from lock_interceptor.redis_store.scripts import load

pytest_plugins = ["store_fixtures"]

FOLDER = files("lock_interceptor.redis_store") / "scripts"
NAMES = ["acquire", "inspect", "park", "release", "renew", "revoke", "survey"]
RETURNS = re.compile(r"^ *(?:if .* then )?return (.*?)(?: end)?$", re.MULTILINE)


def _split(name: str) -> tuple[str, str]:
    """The header (the comment at the top, without the shebang) and the body of a script's file."""
    lines = (FOLDER / f"{name}.lua").read_text("utf-8").splitlines()
    lines = [line for line in lines if not line.startswith("#!")]
    end = next(n for n, line in enumerate(lines) if not line.startswith("--"))
    return "\n".join(lines[:end]), "\n".join(lines[end:])


def _code(text: str) -> str:
    return re.sub(r"--.*", "", text)


def _highest(array: str, text: str) -> int:
    return max((int(n) for n in re.findall(rf"{array}\[(\d+)\]", text)), default=0)


def _own_returns(body: str) -> list[str]:
    """What the script itself returns; what its functions return has no say."""
    outside = re.sub(
        r"^local function .*?^end$|^local function .*end$", "", body, flags=re.MULTILINE | re.DOTALL
    )
    return RETURNS.findall(_code(outside))


def test_all_scripts_are_tested() -> None:
    """Every file in the folder is one of the scripts below, or one of their heads."""
    known = [f"{name}.lua" for name in [*scripts.HEADS, *NAMES]]
    assert sorted(entry.name for entry in FOLDER.iterdir()) == sorted(known)


@pytest.mark.parametrize("name", NAMES)
def test_the_header_names_all_arguments(name: str) -> None:
    """The highest argument that the body reads is the highest that the header documents, without gaps."""
    header, body = _split(name)
    documented = [int(n) for n in re.findall(r"ARGV\[(\d+)\]  \S", header)]
    assert documented == list(range(1, len(documented) + 1))
    assert _highest("ARGV", _code(body)) == len(documented)
    assert "KEYS[1]  the lock" in header
    assert "KEYS" not in _code(body)
    assert "ARGV" not in _code(_split("common")[1])
    assert _highest("KEYS", _code(_split("common")[1])) == 1


@pytest.mark.parametrize("name", ["park", "release", "revoke"])
def test_the_header_names_each_result(name: str) -> None:
    """Scripts that answer with a code return the codes that the header documents, and no others."""
    header, body = _split(name)
    codes = {
        code for result in _own_returns(body) for code in re.findall(r"\b\d+\b", result.split(" and ")[-1])
    }
    documented = header[header.index("Returns") :]
    assert codes == set(re.findall(r"(?:Returns|,) (\d) ", documented))


@pytest.mark.parametrize("name", ["acquire", "inspect", "renew", "survey"])
def test_the_header_names_each_field(name: str) -> None:
    """Scripts that answer with a table return as many fields as the header documents."""
    header, body = _split(name)
    documented = re.findall(r"^-- (?:Returns|       ) \{(.*?)\}", header, re.MULTILINE)
    returned = [re.sub(r"\([^()]*\)", "", result) for result in _own_returns(body)]
    assert {field.count(",") for field in documented} == {field.count(",") for field in returned}
    assert {field.split(",")[0] for field in documented if field[0].isdigit()} == {
        field[1:].split(",")[0] for field in returned if field[1].isdigit()
    }


@pytest.mark.parametrize("name", NAMES)
def test_time_is_read_once_and_in_one_place(name: str) -> None:
    """Only the common head reads the time, so that it can be told, and that it stands still in a script."""
    assert "TIME" not in _code(_split(name)[1])
    assert load(name).text.count("redis.call('TIME')") == 1


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_not_left_to_lua_to_format(name: str) -> None:
    """Lua would round a token when it makes a string of it, so nobody calls tostring."""
    assert "tostring" not in _code(_split(name)[1] + _split("common")[1])


@pytest.mark.parametrize("name", NAMES)
def test_scripts_load_under_their_digest(redis_bench: RedisBench, name: str) -> None:
    """Each server accepts the script as it is and names it as the store does."""
    script = load(name)  # the unchanged one: the fixture has replaced `scripts.load`
    assert redis_bench.redis("SCRIPT", "LOAD", script.text) == script.digest


Operation = Callable[[Bench], Awaitable[object]]
OPERATIONS: dict[str, Operation] = {
    "acquire": lambda bench: bench.wait(bench.claim("other")),
    "renew": lambda bench: bench.renew(bench.claim("holder")),
    "release": lambda bench: bench.release(bench.claim("holder")),
    "park": lambda bench: bench.park(bench.claim("holder")),
    "inspect": lambda bench: bench.look(),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
async def test_a_server_that_forgot_the_scripts_gets_them_again(
    redis_bench: RedisBench, operation: Operation
) -> None:
    """After SCRIPT FLUSH, as after a failover, each operation works and leaves its script in the cache."""
    bench = redis_bench
    await bench.hold(bench.claim("holder"))
    bench.redis("SCRIPT", "FLUSH")
    await operation(bench)
    digests = [scripts.marked(scripts.load(name)).digest for name in NAMES]
    assert sum(bench.redis("SCRIPT", "EXISTS", *digests)) == 1


@pytest.mark.usefixtures("told_time")
@pytest.mark.parametrize("binary", redis_binaries().values(), ids=redis_binaries().keys())
async def test_a_full_server_keeps_what_is_held(binary: Path) -> None:
    """At maxmemory nothing new is granted, while holders renew, park and release, and looking works."""
    clock = Clock()
    with RedisServer("--maxmemory-policy", "noeviction", binary=binary) as server:
        store = store_on(server, clock)
        bench = Bench(store, clock)
        holder, waiter, parker = (bench.claim(name, limit=2) for name in ("holder", "waiter", "parker"))
        await bench.hold(holder)
        await bench.hold(parker)
        await bench.wait(waiter)
        command(server, "CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(LockStoreUnavailable):
            await bench.ask(bench.claim("other", limit=2))
        assert await bench.renew(holder)
        await bench.park(waiter)
        await bench.park(parker)
        assert await bench.owners() == ["holder"]
        assert await bench.release(holder)
        command(server, "CONFIG", "SET", "maxmemory", 0)
        await bench.hold(waiter)
        await store.close()
