"""Bugs that show only when something in the process around the lock fails."""

from .bug import Bug, bug

_RENEWING, _KEEPER, _THREAD, _HOLD, _WATCHDOG, _HARMLESS, _BODIES, _SHOWN = (
    "renewing.py",
    "keeper.py",
    "loop_thread.py",
    "hold.py",
    "watchdog.py",
    "harmless.py",
    "worker/bodies.py",
    "worker/shown_leases.py",
)
_AROUND_KEEPER = "test_faults_around_keeper.py::test_"
_WITHOUT_KEEPER = "test_lease_without_keeper.py::test_no_body_runs_past_its_lease_untold"
_OVERTAKEN = "test_requests_overtaken.py::test_cancelled_on_the_way[0.2-free-leaves]"

IN_PROCESS: tuple[Bug, ...] = (
    bug(
        "only the thread that renews finds out that a lease is over",
        _WATCHDOG,
        "            if lease.lost:\n",
        "            if False:\n",
        f"{_WITHOUT_KEEPER}[async-one-1 s]",
    ),
    bug(
        "a watchdog looks once, and not again after a renewal",
        _WATCHDOG,
        "            self._timer = self._loop.call_later(max(next_look, 0.001), self._look)",
        "            self._timer = self._timer or self._loop.call_later(max(next_look, 0.001), self._look)",
        f"{_AROUND_KEEPER}the_thread_that_renews",
    ),
    bug(
        "a thread that did not start is not tried again",
        _WATCHDOG,
        "                self._renewals.attend()\n",
        "                pass\n",
        "test_renewing_thread.py::test_a_watchdog_starts_it",
    ),
    bug(
        "a thread counts as started before it was",
        _RENEWING,
        "            self._thread, self._pick_up_at = None, math.inf\n            self._thread = LoopThread",
        "            self._pick_up_at = -math.inf\n            self._thread = LoopThread",
        "test_renewing_thread.py::test_the_next_hold_starts_it",
    ),
    bug(
        "an exit that a task raises ends the thread that renews",
        _THREAD,
        "                except Exception:\n                    raise  # the loop itself is broken\n",
        "                except BaseException:\n                    raise\n",
        "test_renewing_thread.py::test_what_a_callback_raises",
    ),
    bug(
        "the event loop of the thread is made by whatever policy is set",
        _THREAD,
        "asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)",
        "asyncio.Runner(loop_factory=asyncio.new_event_loop)",
        "test_foreign_threads.py::test_a_policy_that_refuses",
    ),
    bug(
        "a green thread is taken for a thread",
        _THREAD,
        "        if self._thread.native_id == self._started_from:\n",
        "        if False:\n",
        "test_foreign_threads.py::test_green_threads_of_anybody",
    ),
    bug(
        "closing ends the renewals of bodies that still run",
        _RENEWING,
        "thread, held = self._thread, bool(self._fresh or self._tasks)",
        "thread, held = self._thread, False",
        "test_renewing_thread.py::test_close_leaves_it_to_those_who_hold",
    ),
    bug(
        "a loss is logged before the body is told",
        _HOLD,
        "        self.on_lost()\n        telemetry.lost(",
        "        telemetry.log._log.error('lock.lost')\n        self.on_lost()\n        telemetry.lost(",
        "test_faults_around_watching.py::test_a_sink_that_raises",
    ),
    bug(
        "what a log sink raises comes out",
        _HARMLESS,
        "        return True\n",
        "        return False\n",
        "test_harmless.py::test_nothing_comes_out",
    ),
    bug(
        "the report of a broken log sink may raise itself",
        _HARMLESS,
        "        except BaseException:  # noqa: S110",
        "        except ZeroDivisionError:  # noqa: S110",
        "test_harmless.py::test_nobody_is_left_to_tell",
    ),
    bug(
        "an async body runs in a task of its own, which an exit turns against the worker",
        _BODIES,
        "            return await next.execute_activity(input)\n    except asyncio.CancelledError:",
        "            return await asyncio.ensure_future(next.execute_activity(input))\n"
        "    except asyncio.CancelledError:",
        "test_body_context.py::test_what_it_sets_is_seen_outside",
    ),
    bug(
        "a body that was told of its loss stays cancelled",
        _BODIES,
        "            task.uncancel()\n",
        "            pass\n",
        "test_body_context.py::test_a_body_that_goes_on_after_its_loss",
    ),
    bug(
        "a process is shown the end of its lease once, and no renewal",
        _SHOWN,
        "            lease.show(partial(self._show, place))\n",
        "",
        "test_shown_leases.py::test_follows_renewals_and_losses",
    ),
    bug(
        "a renewal that comes late undoes a loss in the eyes of a process",
        _SHOWN,
        "self._ended.add(place)  # a renewal that is late must not undo it",
        "pass",
        "test_shown_leases.py::test_a_late_renewal_does_not_undo_a_loss",
    ),
    bug(
        "a request that was never answered counts as one that never was",
        _KEEPER,
        "        if hold.echo_possible or not hold.lease.token:\n",
        "        if hold.echo_possible and hold.lease.token:\n",
        _OVERTAKEN.replace("leaves", "parks"),
        _OVERTAKEN,
    ),
    bug(
        "what may yet be granted is given back once more, and then forgotten",
        _KEEPER,
        "            if hurry.is_set() or clock() - began >= length:\n",
        "            if True:\n",
        "test_requests_overtaken.py::test_cancelled_on_the_way[2.5-free-leaves]",
    ),
    bug(
        "the child of a fork renews what its parent holds",
        _RENEWING,
        "        renewals._start_afresh()",
        "        pass",
        "test_forked_worker.py::test_a_child_renews_nothing_of_its_parent",
    ),
)
