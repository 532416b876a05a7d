"""Arguments of `needs_lock` are judged when the activity is decorated, and keys when it is called."""

import functools
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any

import pytest

from lock_interceptor import LockConfigurationError, LockSpec, needs_lock
from lock_interceptor.marker import read_specs
from lock_interceptor.spec import resolve_key


async def async_key(order: str) -> str:
    return order


class AsyncKey:
    async def __call__(self, order: str) -> str:
        return order


class Region(str, Enum):  # noqa: UP042 - members of a StrEnum print as their value already
    EU = "eu"


class Faulty:
    def __repr__(self) -> str:
        raise RuntimeError


class Order:
    region = Region.EU


@pytest.mark.parametrize(
    ("argument", "value", "wanted"),
    [
        ("max_locks", 0, "between 1 and 1000000, not 0"),
        ("max_locks", -1, "between 1 and 1000000, not -1"),
        ("max_locks", 10**9, "between 1 and 1000000, not 1000000000"),
        pytest.param("max_locks", 10**5000, "between 1 and 1000000, not this int", id="5000 digits"),
        ("max_locks", True, "a whole number of 1 or more, not True"),
        ("max_locks", 1.0, "a whole number of 1 or more, not 1.0"),
        ("max_locks", "3", "a whole number of 1 or more, not '3'"),
        ("max_locks", None, "a whole number of 1 or more, not None"),
        ("lock_name", "", "a string with something in it, not ''"),
        ("lock_name", " \t", r"a string with something in it, not ' \\t'"),
        ("lock_name", "x" * 10_000, "is 10000 bytes long, at most 1024 are allowed.*'xxx"),
        ("lock_name", "ü" * 600, "is 1200 bytes long"),
        ("lock_name", 7, "a string, not 7"),
        ("lock_name", b"db", "a string, not b'db'"),
        ("lock_name", "a\udc80", "UTF-8 can encode"),
        ("lock_name", Faulty(), "a string, not this Faulty"),
        ("lock_name", ["x" * 100], r"a string, not \['x{75}\.\.\."),
        ("key", "region", "a function, such as key=lambda order: order.region, not 'region'"),
        ("key", async_key, "an ordinary function, not an async one"),
        ("key", functools.partial(async_key), "an ordinary function, not an async one"),
        ("key", AsyncKey(), "an ordinary function, not an async one"),
        ("lease", 30, r"a timedelta, such as lease=timedelta\(seconds=30\), not 30"),
        ("lease", "30s", "a timedelta"),
        ("lease", timedelta(milliseconds=999), "between 1 second and 1 day"),
        ("lease", timedelta(days=1, seconds=1), "between 1 second and 1 day"),
        ("lease", timedelta(seconds=-30), "between 1 second and 1 day"),
        ("on_conflict", "raise", '"wait" or "fail", not \'raise\''),
        ("on_conflict", None, '"wait" or "fail", not None'),
        ("on_conflict", ["wait"], '"wait" or "fail"'),
    ],
)
def test_invalid_arguments_fail_at_decoration(argument: str, value: Any, wanted: str) -> None:
    """The error comes before there is an activity, names the argument, and says what it has to be."""
    with pytest.raises(LockConfigurationError, match=f"^needs_lock: {argument} .*{wanted}"):
        needs_lock(**{argument: value})


@pytest.mark.parametrize("unknown", ["name", "limit", "timeout"])
def test_unknown_arguments(unknown: str) -> None:
    """A misspelled argument is refused as Python does it, by its name."""
    with pytest.raises(TypeError, match=f"'{unknown}'"):
        needs_lock(**{unknown: 1})


@pytest.mark.parametrize(
    "name", ["{}", "{a}", "a:b", "nul\0", " spaced out ", "größe", "锁", "%7E~", "x" * 1024, "a\nb"]
)
def test_any_text_can_name_a_lock(name: str) -> None:
    """Braces, colons, NULs, spaces and any script are fine in a name, which is kept as it is."""
    assert read_specs(needs_lock(lock_name=name)(lambda: None))[0].lock_name == name


def test_limits_are_inclusive() -> None:
    """The smallest and the largest values that the messages allow are allowed."""
    for max_locks in (1, 1_000_000):
        assert LockSpec(max_locks=max_locks).max_locks == max_locks
    for lease in (timedelta(seconds=1), timedelta(days=1)):
        assert LockSpec(lease=lease).lease == lease


def test_spec_is_immutable() -> None:
    """A limit is fixed at decoration."""
    with pytest.raises(AttributeError):
        LockSpec().max_locks = 2


def test_members_of_an_enum_are_taken_by_value() -> None:
    """A name or key from an Enum is the text of its value, in messages as in Redis."""
    spec = LockSpec(lock_name=Region.EU, key=lambda order: order.region)
    for text in (spec.lock_name, resolve_key(spec, "pick", (Order(),))):
        assert type(text) is str
        assert f"{text}" == "eu"


@pytest.mark.parametrize(
    ("key", "args", "result"),
    [
        (None, ("a",), None),
        (str, (5,), "5"),
        (lambda a, b: f"{a}-{b}", ("x", "y"), "x-y"),
        (lambda *args: f"{len(args)}", (), "0"),
        ("{}:".format, ("ü",), "ü:"),
        (lambda text: text, (" ",), " "),
    ],
)
def test_key_is_called_with_the_activitys_arguments(
    key: Callable[..., str] | None, args: tuple[Any, ...], result: str | None
) -> None:
    """The key function gets what the activity gets, in order; without one there is no key."""
    assert resolve_key(LockSpec(key=key), "pick", args) == result


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (lambda: "x", r"raised TypeError for 1 argument\(s\).*all but self"),
        (lambda order: order["region"], "raised TypeError"),
        (lambda order: order.tenant, "raised AttributeError"),
        (lambda _: None, "returned NoneType, not a string"),
        (lambda _: 7, "returned int, not a string"),
        (lambda _: "", "a string of 0 bytes, allowed are 1 to 1024"),
        (lambda _: "x" * 1025, "a string of 1025 bytes"),
        (lambda _: "\udc80", "UTF-8 cannot encode"),
    ],
)
def test_a_key_that_fails_names_the_activity(key: Callable[..., Any], problem: str) -> None:
    """A key function that raises, or gives something else than a string, is a mistake, and says where."""
    with pytest.raises(LockConfigurationError, match=f"key function.* activity pick .*{problem}"):
        resolve_key(LockSpec(key=key), "pick", (Order(),))


def test_the_error_of_a_key_function_is_told_without_the_arguments() -> None:
    """Its type and its line help whoever has to repair it; its text may quote what nobody should read."""
    with pytest.raises(
        LockConfigurationError, match=r"raised KeyError at test_spec\.py:\d+ for 1 "
    ) as caught:
        resolve_key(LockSpec(key=lambda name: {"a": "b"}[name]), "pick", ("card 4711",))
    error = caught.value
    assert error.__cause__ is error.__context__ is None
    assert "4711" not in str(error)
