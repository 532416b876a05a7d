"""Bugs on the way to Redis, and in what comes back."""

from .bug import Bug, bug

_CONNECTION, _DURABILITY, _STORE, _WAKEUPS, _KEYS, _ERRORS = (
    f"redis_store/{name}.py" for name in ("connection", "durability", "store", "wakeups", "keys", "errors")
)

IN_STORE: tuple[Bug, ...] = (
    # requests
    bug(
        "redis-py repeats requests by itself",
        _CONNECTION,
        '"retry": Retry(NoBackoff(), 0),',
        '"retry": Retry(NoBackoff(), 3),',
        "test_client_rules.py::test_no_request_is_sent_twice[alone]",
    ),
    bug(
        "the Sentinels are asked with redis-py's own retries",
        _CONNECTION,
        "_SentinelClient(host=host, port=port, **options)",
        '_SentinelClient(host=host, port=port, **{**options, "retry": Retry(NoBackoff(), 10)})',
        "test_sentinel.py::test_a_hung_sentinel_costs_little",
    ),
    bug(
        "renewals share their permits with waiters",
        _CONNECTION,
        "self._limit_ahead if ahead else self._limit:",
        "self._limit:",
        "test_renewal_load.py::test_renewals_do_not_wait_behind_waiters[park]",
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
    # wake-ups
    bug(
        "a waiter does not ask again once it is subscribed",
        _WAKEUPS,
        '            elif message["type"] == "subscribe":\n                for event in waiters.values():\n'
        "                    event.set()\n",
        "",
        "test_wakeups.py::test_a_release_before_the_subscription_is_not_missed",
    ),
    bug(
        "a waiter that finds the channel subscribed does not ask again",
        _WAKEUPS,
        "                event.set()  # subscribed already",
        "                pass  # subscribed already",
        "test_wakeups.py::test_a_release_before_the_subscription_is_not_missed",
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
