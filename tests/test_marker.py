"""`needs_lock` attaches a spec to anything that can be an activity, and nothing else happens."""

import functools
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest
from temporalio import activity
from temporalio.common import RawValue

from lock_interceptor import LockConfigurationError, LockSpec, needs_lock
from lock_interceptor.marker import MARK, read_specs

GLOBAL = LockSpec(lock_name="db", max_locks=20)
OTHER = LockSpec(lock_name="api", max_locks=3)


def db(target: Any) -> Any:
    return needs_lock(lock_name="db", max_locks=20)(target)


def api(target: Any) -> Any:
    return needs_lock(lock_name="api", max_locks=3)(target)


def passing_on(fn: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    """What any other decorator does."""

    @functools.wraps(fn, **how)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


def function(order: str) -> str:
    return order


async def async_function(order: str) -> str:
    return order


@activity.defn(dynamic=True)
async def dynamic(args: Sequence[RawValue]) -> None: ...


class Callable_:  # noqa: N801 - "Callable" is taken
    def __call__(self, order: str) -> str:
        return order


class Activities:
    @activity.defn
    @db
    def above(self) -> None: ...

    @db
    @activity.defn
    async def below(self) -> None: ...

    @db
    @staticmethod
    def static_above() -> None: ...

    @staticmethod
    @db
    def static_below() -> None: ...

    @db
    @classmethod
    def of_class(cls) -> None: ...

    @db
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "target", [function, async_function, dynamic, Callable_, Callable_(), functools.partial(function, "x")]
)
def test_same_object_with_one_attribute_more(target: Any) -> None:
    """The decorated object comes back itself, with the specs attached and nothing else touched."""
    before = dict(vars(target))
    try:
        assert db(target) is target
        assert vars(target)[MARK] == (GLOBAL,) == read_specs(target)
        assert {name: value for name, value in vars(target).items() if name != MARK} == before
    finally:
        delattr(target, MARK)


def test_bare_and_called_form_mean_the_same() -> None:
    """Without parentheses, with empty ones and with the defaults spelled out it is the same lock."""

    def fresh() -> Callable[[], None]:
        return lambda: None

    spelled_out = needs_lock(lock_name=None, max_locks=1, key=None, lease=None, on_conflict="wait")
    for mark in (needs_lock, needs_lock(), spelled_out):
        assert read_specs(mark(fresh())) == (LockSpec(),)


def test_order_with_activity_defn_does_not_matter() -> None:
    """Above or below ``@activity.defn`` the worker finds the same spec, and the activity stays one."""
    above = db(activity.defn(name="a")(lambda: None))
    below = activity.defn(name="b")(db(lambda: None))
    for fn in (above, below):
        assert read_specs(fn) == (GLOBAL,)
        assert hasattr(fn, "__temporal_activity_definition")


@pytest.mark.parametrize("name", ["above", "below", "static_above", "static_below", "of_class", "__call__"])
def test_methods(name: str) -> None:
    """Methods of any sort carry their spec, seen through the instance as a worker is given it."""
    assert read_specs(getattr(Activities(), name)) == (GLOBAL,)


def test_instances_of_a_class_with_a_tagged_call() -> None:
    """An instance is an activity, so it is locked as its class or the class's ``__call__`` is."""
    assert read_specs(Activities()) == (GLOBAL,)
    assert read_specs(db(type("Fresh", (Callable_,), {}))()) == (GLOBAL,)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda fn: functools.partial(fn, "x"),
        lambda fn: functools.partial(functools.partial(fn), "x"),
        passing_on,
        lambda fn: passing_on(fn, updated=()),
        lambda fn: functools.partial(passing_on(fn, updated=()), "x"),
        lambda fn: passing_on(functools.partial(passing_on(fn)), assigned=(), updated=()),
        functools.lru_cache,
        staticmethod,
        lambda fn: type("Calls", (), {"__call__": passing_on(fn, updated=())})(),
    ],
)
def test_seen_through_wrappers(wrap: Callable[[Any], Any]) -> None:
    """Whatever the tagged function is wrapped in, in any nesting, the worker finds the lock."""
    assert read_specs(wrap(db(lambda *_: None))) == (GLOBAL,)


@pytest.mark.parametrize("fn", [function, Callable_, Callable_(), print, None, mock.Mock(), mock.MagicMock()])
def test_untagged(fn: object) -> None:
    """What nobody tagged needs no lock, whatever it is."""
    assert read_specs(fn) == ()


def test_stacked_reads_from_the_top_down() -> None:
    """Stacked decorators all count, in the order in which they stand in the source."""

    @db
    @activity.defn
    @api
    @needs_lock(max_locks=2)
    def stacked() -> None: ...

    assert read_specs(stacked) == (GLOBAL, OTHER, LockSpec(max_locks=2))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda fn: functools.partial(fn, "x"),
        passing_on,
        lambda fn: passing_on(fn, updated=()),
        lambda fn: type("Calls", (), {"__call__": fn}),
        lambda fn: type("Calls", (), {"__call__": fn})(),
    ],
)
def test_stacked_on_a_wrapper_the_inner_lock_still_counts(wrap: Callable[[Any], Any]) -> None:
    """Tagging what wraps a tagged function adds a lock; the one inside is not dropped, nor changed."""
    inner = api(lambda *_: None)
    outer = db(wrap(inner))
    assert read_specs(outer) == (GLOBAL, OTHER)
    assert read_specs(inner) == (OTHER,)


def test_a_limit_for_all_and_one_for_each_key_may_share_a_name() -> None:
    """A cap over everything and one per tenant are different locks, so their limits may differ."""

    @needs_lock(max_locks=20)
    @needs_lock(max_locks=3, key=str)
    def pick(tenant: str) -> None: ...

    assert [spec.max_locks for spec in read_specs(pick)] == [20, 3]


def first(*args: str) -> str:
    return args[0]


@pytest.mark.parametrize(
    ("upper", "lower", "why"),
    [
        ({}, {}, "its own activity type twice"),
        ({"lock_name": "db"}, {"lock_name": "db", "max_locks": 5}, "'db' twice"),
        ({"lock_name": "db", "key": first}, {"lock_name": "db", "key": first}, "'db' twice"),
        ({"key": str, "max_locks": 2}, {"key": first}, "max_locks"),
        ({"key": str, "on_conflict": "fail"}, {"key": first}, "on_conflict"),
    ],
)
def test_stacked_contradictions_are_refused(upper: Any, lower: Any, why: str) -> None:
    """Two requests for one lock say nothing new or contradict each other: refused, and nothing changes."""
    fn = needs_lock(**lower)(lambda: None)
    with pytest.raises(LockConfigurationError, match=why):
        needs_lock(**upper)(fn)
    assert read_specs(fn) == (LockSpec(**lower),)


def test_two_keys_of_one_name_may_stack() -> None:
    """One lock for the sender and one for the receiver of the same transfer are fine."""
    sender, receiver = (lambda a, _: a), (lambda _, b: b)
    transfer = needs_lock(lock_name="account", key=sender)(
        needs_lock(lock_name="account", key=receiver)(lambda *_: None)
    )
    assert [spec.key for spec in read_specs(transfer)] == [sender, receiver]


def test_subclasses() -> None:
    """A subclass inherits its base's lock, replaces it with one of its own, and never changes the base."""

    @db
    class Base:
        def __call__(self) -> None: ...

    class Silent(Base): ...

    @api
    class Own(Base): ...

    assert read_specs(Silent()) == (GLOBAL,)
    assert read_specs(Own()) == (OTHER,)
    assert read_specs(Base()) == (GLOBAL,)
