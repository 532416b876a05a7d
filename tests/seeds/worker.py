"""Bugs in the worker: acquiring, keeping, waiting and running."""

from .bug import Bug, bug

_REQUEST, _KEEPER, _RENEWING, _GUARD, _LEASE, _ACQUISITION, _WAITING = (
    f"{name}.py" for name in ("request", "keeper", "renewing", "guard", "lease", "acquisition", "waiting")
)
_PLACES, _BODY_PLACES = "places.py", "worker/body_places.py"
_ATTEMPT, _BODIES, _SLOTS, _FAILURES, _INTERCEPTOR = (
    f"worker/{name}.py" for name in ("attempt", "bodies", "slots", "failures", "interceptor")
)
_TEST_GUARD, _TEST_KEEPER, _TEST_LEASE = (f"test_{topic}.py::test_" for topic in ("guard", "keeper", "lease"))

IN_WORKER: tuple[Bug, ...] = (
    # acquiring
    bug(
        "a lease counts from the answer, not from before the request was sent",
        _REQUEST,
        "expires=sent + length - margin(length)",
        "expires=clock() + length - margin(length)",
        "test_lease_ends.py::test_a_grant_ends_here_first",
    ),
    bug(
        "a grant is accepted although its lease is over",
        _REQUEST,
        "if hold.lease.lost:",
        "if False:",
        "test_late_answers.py::test_a_late_grant_is_asked_for_again",
    ),
    bug(
        "a request is repeated under another owner",
        _REQUEST,
        "        want, claim, sent = self.want, self._claim, clock()\n",
        "        self._claim = replace(self._claim, owner=new_owner(self._claim.waiter))\n"
        "        want, claim, sent = self.want, self._claim, clock()\n",
        f"{_TEST_GUARD}lost_answer",
    ),
    bug(
        "who gives up without an answer keeps what it may have got",
        _REQUEST,
        "if self.hold is None and not self._asked:",
        "if self.hold is None:",
        f"{_TEST_GUARD}cancelled_before_the_answer",
    ),
    bug(
        "a lock of several is kept while another one is waited for",
        _ACQUISITION,
        "            await settle([given_back for request in self._requests for given_back in "
        "request.step_back()])\n",
        "",
        f"{_TEST_GUARD}one_that_steps_back_keeps_its_place",
    ),
    bug(
        "the body begins although the activity was cancelled",
        _ACQUISITION,
        "                self._terms.attempt.check()\n",
        "",
        f"{_TEST_GUARD}cancelled_before_the_body",
    ),
    bug(
        "the body begins under a lock that was lost meanwhile",
        _ACQUISITION,
        "    if hold.lease.lost:\n",
        "    if False:\n",
        f"{_TEST_GUARD}lost_while_asking_for_another",
    ),
    # keeping
    bug(
        "a renewed lease counts from the answer",
        _RENEWING,
        "lease.extend(sent + length - margin(length), final=final)",
        "lease.extend(clock() + length - margin(length), final=final)",
        "test_lease_ends.py::test_a_renewed_lease_ends_here_first",
    ),
    bug(
        "a lease ends here when it ends at the server, with no margin",
        "hold.py",
        "return max(0.02 * length, min(0.5, 0.1 * length))",
        "return 0.0",
        "test_lease_ends.py::test_a_grant_ends_here_first",
    ),
    bug(
        "leases are renewed when they end, not at a third",
        _RENEWING,
        "margin(hold.length) - hold.length * 2 / 3, 0)",
        "margin(hold.length), 0)",
        "test_lease_ends.py::test_a_blocked_event_loop_loses_nothing",
        f"{_TEST_KEEPER}renews",
    ),
    bug(
        "a renewal that fails is the last one",
        _RENEWING,
        "max(lease.remaining / 4, 0.05))\n                continue\n",
        "max(lease.remaining / 4, 0.05))\n                return\n",
        f"{_TEST_KEEPER}short_outage",
    ),
    bug(
        "new leases are looked for only when their first renewal is overdue",
        _RENEWING,
        "min(hold.length / 10, _due(hold) / 2)",
        "hold.length",
        f"{_TEST_KEEPER}renews",
    ),
    bug(
        "a short lease waits until the keeper looks for the long ones before it",
        _RENEWING,
        "                if at < self._pick_up_at:\n",
        "                if self._pick_up_at == math.inf:\n",
        f"{_TEST_KEEPER}a_short_lease_after_long_ones",
    ),
    bug(
        "the server's no to a renewal that a release has overtaken counts as a loss",
        _RENEWING,
        "        if self.stop(hold):  # else it is being given back\n",
        "        if self.stop(hold) or True:\n",
        f"{_TEST_KEEPER}a_renewal_that_a_release_overtakes",
    ),
    bug(
        "giving back waits for as long as the store takes",
        _KEEPER,
        "            async with asyncio.timeout(max(seconds, 0)):\n",
        "            async with asyncio.timeout(None):\n",
        f"{_TEST_KEEPER}giving_back_is_bounded",
    ),
    bug(
        "a late release takes the next attempt out of the line",
        _KEEPER,
        "claim = _without_place(hold.claim) if hold.lease.token else hold.claim",
        "claim = hold.claim",
        f"{_TEST_KEEPER}a_late_release_leaves_the_next_attempt_its_place[True]",
    ),
    bug(
        "what was held is not given back again after a request that was not answered",
        _KEEPER,
        "if hold.echo_possible or not hold.lease.token:",
        "if not hold.lease.token:",
        "test_late_requests.py::test_an_echo_of_what_was_held[release]",
    ),
    bug(
        "the server's no to a renewal is not believed",
        _RENEWING,
        "            if not alive:\n",
        "            if False:\n",
        f"{_TEST_KEEPER}no_is_final",
    ),
    bug(
        "a lease is renewed beyond schedule-to-close",
        _RENEWING,
        "length = min(hold.length, lease.until_deadline)",
        "length = hold.length",
        f"{_TEST_KEEPER}never_beyond_the_deadline",
    ),
    bug(
        "leases are renewed from the worker's event loop, which bodies may block",
        _RENEWING,
        "                if at < self._pick_up_at:\n"
        "                    self._running().loop.call_soon_threadsafe(self._pick_up, at)\n",
        "                if at < self._pick_up_at:\n"
        "                    asyncio.get_running_loop().call_soon_threadsafe(self._pick_up, at)\n",
        "test_lease_ends.py::test_a_blocked_event_loop_loses_nothing",
    ),
    bug(
        "a lease that was over comes back to life",
        _LEASE,
        "        if self.lost:\n            return False\n",
        "",
        f"{_TEST_LEASE}lost_when_the_time_is_over",
    ),
    bug(
        "leases go by the wall clock",
        _LEASE,
        "return time.clock_gettime(time.CLOCK_BOOTTIME)",
        "return time.time()",
        f"{_TEST_LEASE}the_clock_goes_on_while_the_machine_sleeps",
    ),
    # running, and giving back
    bug(
        "nobody tells the body that its lease is lost",
        "hold.py",
        "        self.on_lost()\n",
        "",
        f"{_TEST_KEEPER}long_outage",
    ),
    bug(
        "a coroutine is not cancelled when its lease is lost",
        _BODIES,
        "        with watchdog.interrupting(interrupt):\n",
        "        with watchdog.interrupting(lambda: None):\n",
        "test_activity_lost.py::test_body_is_stopped[deleted-async]",
    ),
    bug(
        "a thread's heartbeat goes through although its lease is lost",
        _BODIES,
        "            lease.raise_if_lost()\n\n\ndef _complete",
        "            pass\n\n\ndef _complete",
        "test_activity_lost.py::test_body_is_stopped[deleted-thread that heartbeats]",
    ),
    bug(
        "success is reported although the lease was lost",
        _GUARD,
        "if lost := lost or gone:",
        "if lost := None:",
        f"{_TEST_GUARD}gone_before_it_was_given_back",
    ),
    bug(
        "a body that is cancelled leaves its lock to the end of the lease",
        _GUARD,
        "does not matter any more\n            await self._release(holds)\n",
        "does not matter any more\n",
        "test_guard_cancelled.py::test_cancelled_while_running",
    ),
    bug(
        "a cancel ends the release, too",
        _KEEPER,
        "            again = self._go_on(leaving, error)\n            if await settle(",
        "            if isinstance(error, asyncio.CancelledError):\n                raise\n"
        "            again = self._go_on(leaving, error)\n            if await settle(",
        "test_guard_cancelled.py::test_cancelled_while_the_store_says_nothing",
    ),
    bug(
        "a release that gets no answer is not repeated",
        _KEEPER,
        "if isinstance(error, LockConfigurationError) or ",
        "if True or ",
        f"{_TEST_KEEPER}release_is_repeated",
    ),
    # waiting
    bug(
        "waiters rely on wake-ups, and do not ask by themselves",
        _WAITING,
        "delay = interval * (0.8 + 0.2 * jitter)",
        "delay = 3600.0",
        "test_waiting.py::test_next_poll",
    ),
    bug(
        "an attempt is sent away beyond its deadline, which fails the activity",
        _WAITING,
        "latest = min(MAX_DELAY, until_deadline - 2 * MIN_DELAY)",
        "latest = MAX_DELAY",
        "test_waiting.py::test_no_delay_reaches_past_the_deadline",
    ),
    bug(
        "waiting heartbeats without the previous details, so that a checkpoint is lost",
        _ATTEMPT,
        "            # not activity.heartbeat(): that would overwrite the last attempt's checkpoint\n"
        "            self._outbound.heartbeat(*self.info.heartbeat_details)",
        "            self._outbound.heartbeat()",
        "test_activity_waiting.py::test_checkpoint_survives_waiting",
    ),
    bug(
        "each attempt stands in line anew",
        "worker/wanted.py",
        "waiter = waiter_id(*attempt.identity, lock=lock)",
        "waiter = new_owner('')",
        "test_activity_waiting.py::test_worker_shut_down_while_waiting[async-at once]",
    ),
    bug(
        "whose heartbeats came late is taken for cancelled, and loses its place",
        _ATTEMPT,
        "return details is None or not details.cancel_requested",
        "return details is None or details.timed_out or details.worker_shutdown",
        "test_waiting_stalls.py::test_heartbeats_that_come_late[async]",
    ),
    bug(
        "a cancelled activity keeps its place in line",
        _ATTEMPT,
        "return details is None or not details.cancel_requested",
        "return details is None or True",
        "test_activity_waiting.py::test_cancelled_while_waiting[async]",
    ),
    bug(
        "the plugin's permits are not counted, so that any number runs",
        _SLOTS,
        "self._limit + self._room.without_place - self._issued, 0)",
        "self._limit + self._room.without_place, 0)",
        "test_slots.py::test_limit_holds_without_waiters",
    ),
    # places for bodies
    bug(
        "a request that is denied keeps the place for its body",
        _REQUEST,
        "            if has_place:  # one",
        "            if False:  # one",
        "test_waiting_places.py::test_a_place_for_a_busy_lock_is_asked_for_once",
    ),
    bug(
        "a waiter without a place stays in the way of those in other workers",
        _REQUEST,
        "until_taken(pause, or_full=self._present)",
        "until_taken(pause)",
        "test_waiting_places.py::test_all_that_are_present_are_parked_by_one_call",
    ),
    bug(
        "each waiter without a place has to be woken before others are",
        _PLACES,
        "if or_full and not self.taken and not was_called:",
        "if False:",
        "test_waiting_places.py::test_all_that_are_present_are_parked_by_one_call",
    ),
    bug(
        "a full worker is taken for a busy lock",
        _REQUEST,
        "await until_place(self._terms, self._claim.lock, self._hot_until, or_full=or_full)",
        "pass",
        "test_waiting_places.py::test_without_waiting_for_the_lock_it_waits_for_a_place",
    ),
    bug(
        "a grant that came to light without a place for the body is kept",
        _REQUEST,
        "        if not body.take():\n",
        "        if False:\n",
        "test_waiting_places.py::test_what_was_granted_unknown_to_us_is_given_back_without_a_place",
    ),
    bug(
        "the last in line gets the place for a body",
        _PLACES,
        "body.ticket < first[line].ticket",
        "body.ticket > first[line].ticket",
        "test_places.py::test_waiters_for_a_lock_go_in_the_order_of_its_line",
    ),
    bug(
        "everybody asks when a place is free, and not only the foremost",
        _PLACES,
        "if body.wants and body.free > before:",
        "if body.wants and body.free > 0:",
        "test_places.py::test_only_as_many_are_called_as_can_be_granted",
    ),
    bug(
        "a place is given back while another lock is held",
        _PLACES,
        "if not self.taken or (denied and self._running):",
        "if not self.taken:",
        "test_places.py::test_a_body_that_holds_a_lock_keeps_its_place_when_another_lock_is_busy",
    ),
    bug(
        "activities without locks take no place in their worker",
        _BODY_PLACES,
        "if self._worker is not None and not info.is_local:",
        "if False:",
        "test_body_permits.py::test_waiters_are_granted_no_more_than_there_are_permits",
    ),
    bug(
        "activities without locks take no place in their executor",
        _BODY_PLACES,
        "if (executor := _places_of(input.executor)) is not None:",
        "if False:",
        "test_small_pools.py::test_a_free_lock_is_not_taken_without_a_thread[plugin]",
    ),
    bug(
        "each worker counts the threads of a shared executor for itself",
        _BODY_PLACES,
        "return _executors.setdefault(executor, Places(size))",
        "return Places(size)",
        "test_small_pools.py::test_workers_that_share_a_pool",
    ),
    bug(
        "nobody heartbeats for an activity that a waiter went before",
        _BODY_PLACES,
        "if every and outbound is not None and not place.taken:",
        "if False:",
        "test_body_permits.py::test_one_that_a_waiter_went_before_heartbeats",
    ),
    bug(
        "waiters take all permits of a worker without workflows",
        _INTERCEPTOR,
        "self._of_workers.look(self, activity.info())",
        "pass",
        "test_worker_size.py::test_half_of_the_permits_without_workflows[worker-context]",
    ),
    bug(
        "all permits of a worker that cannot be found are taken",
        "worker/worker_size.py",
        "if not self._known:",
        "if False:",
        "test_worker_size.py::test_a_worker_that_cannot_be_found",
    ),
    bug(
        "the plugin hides that the executor is too small",
        _SLOTS,
        "if isinstance(threads, int) and threads < limit:",
        "if False:",
        "test_small_pools.py::test_the_sdk_warns_of_a_small_pool[50-True-plugin]",
    ),
    # what is refused, and how it is told
    bug(
        "a local activity is accepted",
        _ATTEMPT,
        "    if info.is_local:\n",
        "    if False:\n",
        "test_refusals.py::test_local_activity[async]",
    ),
    bug(
        "a workflow with a lock is accepted",
        "worker/workflow_check.py",
        "if read_specs(function) and not _is_activity(function):",
        "if False:",
        "test_workflow_check.py::test_every_part_of_a_workflow",
    ),
    bug(
        "a lost lease fails the activity for good",
        _FAILURES,
        "non_retryable=isinstance(error, LockConfigurationError | LockBusy)",
        "non_retryable=not isinstance(error, LockNotAcquired | LockStoreUnavailable)",
        "test_errors.py::test_in_temporal",
    ),
)
