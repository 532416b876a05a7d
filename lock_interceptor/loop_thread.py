"""`LoopThread`: a native thread with an event loop of its own that only its owner ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from lock_interceptor import telemetry
from lock_interceptor.errors import LockConfigurationError

Result = TypeVar("Result")


class NoThreadError(Exception):
    """The system starts no thread for us now. The cause says why."""


class LoopThread:
    """The thread. It is a daemon: a process that ends does not wait for it."""

    def __init__(self, name: str) -> None:
        # not asyncio.new_event_loop(): a policy, such as that of trio_asyncio, may refuse to make one
        self._runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
        self.loop = self._runner.get_loop()
        self._ending = False
        self._started_from = threading.get_native_id()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @classmethod
    def start(cls, name: str) -> LoopThread:
        """Start a thread.

        Raises:
            LockConfigurationError: a library has replaced the threads of this process.
            NoThreadError: the system refuses.
        """
        refuse_green_threads()
        try:
            self = cls(name)
            try:
                self._thread.start()
            except BaseException:
                self.loop.close()  # nothing ran in it
                raise
        except Exception as error:
            raise NoThreadError(str(error)) from error
        if self._thread.native_id == self._started_from:
            raise _no_native_threads("a library")
        return self

    def is_alive(self) -> bool:
        """Whether it runs; in the child of a fork it does not."""
        return self._thread.is_alive()

    def submit(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Run a coroutine in the thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def end(self) -> None:
        """End the thread; to be called in it."""
        self._ending = True
        self.loop.stop()

    async def join(self, seconds: float) -> None:
        """Wait until it has ended, at most for so long. This needs no thread, as there may be no more."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(self._ended), seconds)
            self._thread.join()  # it has nothing left to do

    def _run(self) -> None:
        try:
            if threading.get_native_id() == self._started_from:
                self.loop.close()  # a green thread, see `start`
                return
            while not self._ending:
                try:
                    self.loop.run_forever()
                except Exception:
                    raise  # the loop itself is broken
                except BaseException as error:
                    # an exit or an interrupt that one callback raises must not end the work of all others
                    telemetry.renewing_failed(error)
            self._runner.close()
        except Exception as error:
            telemetry.renewing_failed(error)
        finally:
            self._ended.set_result(None)


def refuse_green_threads() -> None:
    """Refuse a process whose threads are not native: they stand still whenever its event loop does.

    Raises:
        LockConfigurationError: gevent or eventlet has replaced them.
    """
    gevent, eventlet = (sys.modules.get(name) for name in ("gevent.monkey", "eventlet.patcher"))
    if gevent is not None and gevent.is_module_patched("threading"):
        raise _no_native_threads("gevent.monkey.patch_all()")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        raise _no_native_threads("eventlet.monkey_patch()")


def _no_native_threads(who: str) -> LockConfigurationError:
    return LockConfigurationError(
        f"{who} has replaced the threads of this process by green ones, so no lock could be renewed while "
        "its event loop is busy. Run activities with @needs_lock in a worker process of their own, without it"
    )
