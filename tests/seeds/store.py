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
        "self._limit_ahead if ahead else self._limit:",
        "self._limit:",
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
        "        if left <= 0:\n",
        "        if False:\n",
        "test_shared_connection.py::test_a_server_that_hangs",
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
