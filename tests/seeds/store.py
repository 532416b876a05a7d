"""Bugs on the way to Redis, and in what comes back."""

from .bug import Bug, bug

_CONNECTION, _SHARED, _DURABILITY, _STORE, _WAKEUPS, _KEYS, _ERRORS = (
    f"redis_store/{name}.py"
    for name in ("connection", "shared_connection", "durability", "store", "wakeups", "keys", "errors")
)

IN_STORE: tuple[Bug, ...] = (
    # requests
    bug(
        "redis-py repeats requests by itself",
        _CONNECTION,
        '"retry": Retry(NoBackoff(), 0),',
        '"retry": Retry(NoBackoff(), 3),',
        "test_client_rules.py::test_no_request_is_sent_twice[behind Sentinel]",
    ),
    bug(
        "the Sentinels are asked with redis-py's own retries",
        _CONNECTION,
        "SentinelClient(host=host, port=port, **options)",
        'SentinelClient(host=host, port=port, **{**options, "retry": Retry(NoBackoff(), 10)})',
        "test_sentinel.py::test_a_hung_sentinel_costs_little",
    ),
    bug(
        "renewals share their permits with waiters",
        _CONNECTION,
        "(self._permits_ahead if ahead else self._permits).one()",
        "self._permits.one()",
        "test_renewal_load.py::test_renewals_do_not_wait_behind_waiters[pooled-park]",
    ),
    bug(
        "a server that has forgotten the scripts is not told them again",
        _STORE,
        "except NoScriptError:",
        "except NotImplementedError:",
        "test_scripts.py::test_a_server_that_forgot_the_scripts_gets_them_again[valkey-acquire]",
    ),
    # what replicas have confirmed
    bug(
        "a grant that too few replicas have confirmed counts in strict",
        _STORE,
        '            reply.replicas.check("grant", reply.confirmed)\n',
        "",
        "test_durability.py::test_an_unconfirmed_grant_is_given_back",
    ),
    bug(
        "a renewal that too few replicas have confirmed counts in strict",
        _STORE,
        '            reply.replicas.check("renewal", reply.confirmed)\n',
        "            pass\n",
        "test_durability.py::test_an_unconfirmed_renewal_is_no_answer",
    ),
    bug(
        "strict is content with one replica of several",
        _DURABILITY,
        "return max(all_of_them, 1)",
        "return 1",
        "test_profiles.py::test_a_replica_that_is_away_counts[sentinel]",
    ),
    # one connection for many
    bug(
        "answers go to those who ask, the last first",
        _SHARED,
        "zip(reversed(requests), reversed(said), strict=True)",
        "zip(requests, reversed(said), strict=True)",
        "test_shared_connection.py::test_everybody_gets_his_own_answer",
    ),
    bug(
        "the answer for somebody who was cancelled goes to the next",
        _SHARED,
        "requests = list(itertools.islice(self._unanswered, len(answers)))",
        "requests = [each for each in self._unanswered if not each.answer.done()][: len(answers)]",
        "test_shared_connection.py::test_who_is_cancelled_takes_no_answer_from_others",
    ),
    bug(
        "an answer that got lost goes unnoticed, and the next one takes its place",
        "redis_store/wire.py",
        "or answer[0] != str(mark)",
        "or False",
        "test_shared_connection.py::test_a_proxy_that_swallows_something",
    ),
    bug(
        "who waits for an answer on a lost connection waits for ever",
        _SHARED,
        "            _settle(self._unanswered.popleft().answer, copy(lost.result()))\n",
        "            self._unanswered.popleft()\n",
        "test_shared_connection.py::test_a_connection_that_is_cut",
    ),
    bug(
        "a server that hangs keeps everybody",
        _SHARED,
        '        self.wire.close(RedisTimeoutError("Timeout reading from socket"))\n',
        "        pass\n",
        "test_shared_connection.py::test_a_server_that_hangs",
    ),
    # time limits
    bug(
        "a limit counts the time for which the event loop was blocked",
        "redis_store/time_limits.py",
        "        self._left -= 1\n",
        "        self._left = 0\n",
        "test_time_limits.py::test_a_limit_counts_the_time_of_the_loop",
    ),
    bug(
        "redis-py's own limits end a request whose answer is there",
        "redis_store/client_connections.py",
        'super().__init__(**{**options, "socket_timeout": None, "socket_connect_timeout": None})',
        'super().__init__(**{**options, "socket_timeout": socket_timeout})',
        "test_time_limits.py::test_a_loop_that_was_blocked",
    ),
    bug(
        "an answer gives those behind it no more time",
        _SHARED,
        "        if len(self._unanswered) > len(self._unsent):\n            self._silence.start()\n",
        "        if len(self._unanswered) > len(self._unsent):\n            pass\n",
        "test_time_limits.py::test_each_answer_gives_the_others_time",
    ),
    bug(
        "a request gives those before it more time",
        _SHARED,
        "if unsent and len(unsent) == len(self._unanswered):",
        "if unsent:",
        "test_time_limits.py::test_who_asks_gives_nobody_time",
    ),
    bug(
        "who waits for a connection fails, though others are served",
        "redis_store/permits.py",
        "        if self._silence is not None and self._waiting:\n            self._silence.start()\n",
        "",
        "test_time_limits.py::test_a_queue_for_connections_is_no_failure",
    ),
    bug(
        "who waits for a connection does so however silent the server is",
        "redis_store/permits.py",
        "            self._silence.start()\n        self._waiting.append(turn)\n",
        "            pass\n        self._waiting.append(turn)\n",
        "test_time_limits.py::test_a_silent_server_is_told_to_all[failover]",
    ),
    # loops and processes
    bug(
        "event loops that end keep their connections",
        "redis_store/loops.py",
        "                here.end.asend(None).send(None)  # from now on the loop knows of it\n",
        "                pass\n",
        "test_loops_and_forks.py::test_what_a_loop_opened_goes_with_it[one-run_and_end]",
    ),
    bug(
        "event loops that were closed are kept",
        "redis_store/loops.py",
        "            self._drop_closed()\n",
        "",
        "test_loops_and_forks.py::test_what_a_loop_opened_goes_with_it[one-run_and_close]",
    ),
    bug(
        "children of a fork keep the connections open",
        "redis_store/open_sockets.py",
        "                os.dup2(null, descriptor, inheritable=False)\n",
        "                pass\n",
        "test_loops_and_forks.py::test_a_child_keeps_no_connection[one-False]",
    ),
    bug(
        "a child of a fork closes its parent's connections",
        "redis_store/open_sockets.py",
        "                os.dup2(null, descriptor, inheritable=False)\n",
        "                writer.get_extra_info('socket').shutdown(2)\n",
        "test_loops_and_forks.py::test_a_parent_is_not_disturbed[one-False]",
    ),
    # who does not wait
    bug(
        "an activity fails for good against its own dead attempt",
        "conflict.py",
        "waiting.held - waiting.own",
        "waiting.held",
        "test_fail_fast.py::test_only_others_are_somebody_else",
    ),
    bug(
        "those in line are nobody to who does not wait",
        "conflict.py",
        "others + waiting.place - 1 >= claim.limit",
        "others >= claim.limit",
        "test_fail_fast.py::test_who_waits_is_somebody_else",
    ),
    bug(
        "renewals share their connection with everything else",
        "redis_store/sending.py",
        "shared = connections.shared_ahead if ahead else connections.shared",
        "shared = connections.shared",
        "test_renewal_load.py::test_renewals_do_not_wait_behind_waiters[shared-park]",
    ),
    # wake-ups
    bug(
        "a waiter does not ask again once it is subscribed",
        _WAKEUPS,
        "                for listener in line.listeners.values():\n"
        "                    listener.event.set()\n",
        "                pass\n",
        "test_wakeups.py::test_a_release_before_the_subscription_is_not_missed",
    ),
    bug(
        "a waiter that finds the channel subscribed does not ask again",
        _WAKEUPS,
        "                listener.event.set()  # subscribed already",
        "                pass  # subscribed already",
        "test_wakeups.py::test_a_release_before_the_subscription_is_not_missed",
    ),
    bug(
        "a release calls whoever waits in its process, next in line or not",
        _WAKEUPS,
        "first.turn > line.calls + 1",
        "False",
        "test_handing_on.py::test_who_is_not_next_is_left_in_peace",
    ),
    bug(
        "the calls for others do not move the line",
        _WAKEUPS,
        "self.calls, self.called = self.calls + 1, waiter",
        "self.called = waiter",
        "test_handing_on.py::test_the_line_moves_with_every_call",
    ),
    bug(
        "a subscriber that has gone deaf is kept",
        _WAKEUPS,
        'raise TimeoutError("the subscriber connection does not answer")',
        "continue",
        "test_wakeups.py::test_a_hung_subscriber_is_noticed",
    ),
    # names and secrets
    bug(
        "braces and colons in a name are not encoded, so that it reaches other keys",
        _KEYS,
        'quote(part, safe="")',
        'quote(part, safe=":{}")',
        "test_keys.py::test_two_locks_have_two_keys",
    ),
    bug(
        "applications share the locks of one name",
        _KEYS,
        "':'.join(map(_encode, parts))",
        "':'.join(map(_encode, parts[1:]))",
        "test_keys.py::test_two_locks_have_two_keys",
    ),
    bug(
        "an error shows the URL with its password",
        _CONNECTION,
        'f"{parts.hostname}:{parts.port or 6379}"',
        "settings.redis_url.get_secret_value()",
        "test_secrets.py::test_no_failure_shows_a_secret[wrong password in the URL]",
    ),
    bug(
        "TLS takes any server's certificate, whatever its name is",
        _CONNECTION,
        '"ssl_check_hostname": True',
        '"ssl_check_hostname": False',
        "test_tls.py::test_a_wrong_host_name_is_told",
    ),
    bug(
        "a password that is refused counts as an outage, to be waited out",
        _ERRORS,
        "LockStoreUnavailable if worked_before else LockConfigurationError",
        "LockStoreUnavailable",
        "test_sentinel.py::test_a_refused_login_names_whose_it_is[change0-REDIS_SENTINEL_PASSWORD]",
    ),
)
