"""The sockets that are open in this process, to let go of those that nobody can close properly any more.

That is after a fork, in the child: there they belong to the parent, which goes on using them, so nothing may
be sent on them (not even the end of TLS). And when an event loop was closed before what was open in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakMethod

from redis.asyncio.connection import AbstractConnection

_opened: WeakKeyDictionary[AbstractConnection, asyncio.AbstractEventLoop] = WeakKeyDictionary()
_in_child: list[WeakMethod[Callable[[], object]]] = []
_left_to_parent: list[object] = []
"""Kept in a child, so that no destructor touches it."""


def opened(connection: AbstractConnection) -> None:
    """Take note of a connection that was just opened in the running loop."""
    _opened[connection] = asyncio.get_running_loop()


def call_in_children(forget: Callable[[], object]) -> None:
    """Call this method in each child of a fork while its object lives. What it returns is kept, unused."""
    _in_child[:] = [each for each in _in_child if each() is not None]
    _in_child.append(WeakMethod(forget))


def close_transport(transport: Any) -> None:
    """Close it at once, also when its event loop is closed and cannot do its part."""
    try:
        transport.abort()
    except RuntimeError:
        inner = getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)
        with contextlib.suppress(Exception):  # the protocol's, which has no loop either
            inner._call_connection_lost(None)  # noqa: SLF001 - what abort() leaves to the loop's next turn


def close_all_of(loop: asyncio.AbstractEventLoop) -> None:
    """Close what was opened in this event loop, which is closed."""
    for connection, its_loop in list(_opened.items()):
        writer = connection._writer  # noqa: SLF001 - there is no other way to it
        if its_loop is loop and writer is not None:
            connection._reader = connection._writer = None  # noqa: SLF001 - or it would complain
            close_transport(writer.transport)


def _let_go() -> None:
    """In the child of a fork.

    Something else takes the place of each descriptor: whoever closes it later on, by its number, must not hit
    what was opened meanwhile.
    """
    writers = [connection._writer for connection in list(_opened)]  # noqa: SLF001 - as above
    null = os.open(os.devnull, os.O_RDWR)
    for writer in writers:
        if writer is not None and not writer.is_closing():
            descriptor = writer.get_extra_info("socket").fileno()
            if descriptor >= 0:
                os.dup2(null, descriptor, inheritable=False)
    os.close(null)
    _left_to_parent.extend(_opened)
    _left_to_parent.extend(forget() for each in list(_in_child) if (forget := each()))
    _opened.clear()


os.register_at_fork(after_in_child=_let_go)
