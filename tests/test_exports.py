"""What can be imported from the package, and what else shows."""

import importlib.metadata
import inspect

import pytest

import lock_interceptor


def test_all_is_what_shows() -> None:
    """``__all__``, ``dir()`` and completion agree, sorted; nothing that modules import leaks out."""
    assert dir(lock_interceptor) == lock_interceptor.__all__ == sorted(set(lock_interceptor.__all__))


@pytest.mark.parametrize("name", lock_interceptor.__all__)
def test_every_name_is_there(name: str) -> None:
    """Each public name loads, is the same object each time, comes from this package, and is documented."""
    value = getattr(lock_interceptor, name)
    assert value is getattr(lock_interceptor, name) or name == "__version__"
    if name != "__version__":
        assert value.__name__ == name
        assert value.__module__.startswith("lock_interceptor.")
        assert inspect.getdoc(value)


def test_star_import() -> None:
    """``import *`` brings the public names and no others."""
    namespace: dict[str, object] = {}
    exec("from lock_interceptor import *", namespace)  # noqa: S102 - not possible in a function otherwise
    del namespace["__builtins__"]
    assert sorted(namespace) == lock_interceptor.__all__


def test_version() -> None:
    """``__version__`` is the version that is installed."""
    assert lock_interceptor.__version__ == importlib.metadata.version("lock-interceptor")


def test_unknown_names() -> None:
    """A name that is not there fails as it does in any module."""
    with pytest.raises(AttributeError, match="module 'lock_interceptor' has no attribute 'Mutex'"):
        _ = lock_interceptor.Mutex
    with pytest.raises(ImportError, match="Mutex"):
        from lock_interceptor import Mutex  # noqa: F401, PLC0415
