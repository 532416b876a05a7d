"""Bugs in the Lua scripts."""

from .bug import Bug, Edit, bug

_ACQUIRE, _RENEW, _RELEASE, _PARK, _COMMON, _IN_LINE = (
    f"redis_store/scripts/{name}.lua" for name in ("acquire", "renew", "release", "park", "common", "line")
)
_TWO = "test_two_attempts.py::test_"
_CONTRACT, _LINE, _CLOCK, _FAILOVER, _WAKEUPS, _ON_REDIS = (
    f"test_store_{topic}.py::test_"
    for topic in ("contract", "line", "clock", "failover", "wakeups", "on_redis")
)

IN_SCRIPTS: tuple[Bug, ...] = (
    # who may do what
    bug(
        "renewing does not look whether the owner still holds",
        _RENEW,
        "if not expiry then\n",
        "if false then\n",
        f"{_CONTRACT}only_the_owner_renews_and_releases",
    ),
    bug(
        "releasing does not look who the owner is",
        _RELEASE,
        "local last, queue, mean, longest,",
        "owner = string.sub(range(1e12, 9.999e12)[1] or 'h', 2)\nlocal last, queue, mean, longest,",
        f"{_CONTRACT}only_the_owner_renews_and_releases",
    ),
    bug(
        "asking again takes a second slot",
        _ACQUIRE,
        "if expiry then\n",
        "if false then\n",
        f"{_CONTRACT}asking_again_changes_nothing_but_the_lease",
    ),
    bug(
        "an attempt that ends late takes its successor out of the line",
        _RELEASE,
        "  drop_holder(owner, token)\nelse\n",
        "  drop_holder(owner, token)\nend\ndo\n",
        f"{_LINE}a_late_release_leaves_the_next_attempt_its_place",
    ),
    # how many, and in which slot
    bug(
        "a limit, once used, stays although the next request has another one",
        _ACQUIRE,
        "local free = limit - held\n",
        "if not scores('#N') then put(noted(limit), '#N') end\nlocal free = noted(scores('#N')) - held\n",
        f"{_CONTRACT}a_lower_limit_evicts_nobody",
    ),
    bug(
        "slots are given by the number of holders, so that two get the same",
        _ACQUIRE,
        "low, 's' .. owner",
        "held, 's' .. owner",
        f"{_CONTRACT}the_smallest_free_slot_is_taken",
    ),
    # when a lease ends
    bug(
        "< for <= where a lease ends: it lasts a millisecond too long",
        _IN_LINE,
        "each(1e12, now,",
        "each(1e12, now - 1,",
        f"{_CONTRACT}a_lease_lasts_to_the_millisecond",
    ),
    bug(
        "a lease ends a millisecond early at the server",
        _IN_LINE,
        "each(1e12, now,",
        "each(1e12, now + 1,",
        f"{_CONTRACT}a_lease_lasts_to_the_millisecond",
    ),
    bug(
        "renewing lets the key expire under a body that takes long",
        _RENEW,
        "keep_alive(lease_ms, 0)\n",
        "",
        f"{_ON_REDIS}nothing_is_ever_without_an_end",
    ),
    bug(
        "renewing fails when the server's memory is full",
        _RENEW,
        "#!lua flags=allow-oom\n",
        "#!lua\n",
        "test_scripts.py::test_a_full_server_keeps_what_is_held",
    ),
    # clocks and tokens
    Bug(
        "leases go by the clock of the worker that asks",
        (
            Edit(_COMMON, "local time = redis.call('TIME')", "local time = {ARGV[#ARGV], 0}"),
            Edit(
                "redis_store/store.py",
                "        script, mark = scripts.marked(scripts.load(name)), next(_marks)\n",
                "        script, mark = scripts.marked(scripts.load(name)), next(_marks)\n"
                "        args = (*args, int(__import__('time').time()))\n",
            ),
        ),
        ("test_lease_ends.py::test_a_wrong_wall_clock_moves_no_lease",),
    ),
    bug(
        "a server's clock that steps back is not followed",
        _IN_LINE,
        "  local changed = follow_clock(last)\n",
        "  local changed = false\n",
        f"{_CLOCK}a_step_back_keeps_no_dead_holder",
    ),
    bug(
        "tokens are counted up, without the time",
        _ACQUIRE,
        "math.max((noted(newest) or 0) + 1, us)",
        "(noted(newest) or 1e15) + 1",
        f"{_ON_REDIS}an_idle_key_is_deleted_by_the_server",
    ),
    bug(
        "tokens are the time alone, without the last one",
        _ACQUIRE,
        "math.max((noted(newest) or 0) + 1, us)",
        "us",
        f"{_CONTRACT}tokens_rise_with_each_grant",
    ),
    bug(
        "the key is deleted at once with the last release, so that the last token is forgotten",
        _IN_LINE,
        "redis.call('PEXPIRE', key, str(math.max(2 * (longest or 0), 60000)))",
        "redis.call('DEL', key)",
        f"{_CLOCK}tokens_rise_when_the_clock_steps_back",
    ),
    # the line
    bug(
        "the rank is forgotten: a newcomer overtakes who waits",
        _ACQUIRE,
        "free > rank and",
        "free > 0 and",
        f"{_LINE}a_newcomer_overtakes_nobody",
    ),
    bug(
        "whoever asks again goes to the end of the line",
        _ACQUIRE,
        "local place = ticket or priority",
        "local place = priority",
        f"{_LINE}first_come_first_served",
    ),
    bug(
        "parking loses the place",
        _PARK,
        "  make_cold(waiter, ticket)\n",
        "",
        f"{_LINE}a_parked_waiter_leaves_no_place_idle",
    ),
    bug(
        "a parked waiter at the head keeps a free slot from the others",
        _ACQUIRE,
        "local rank = queue and count(1e11, place - 1) or 0",
        "local rank = count(1e11, place - 1) + count(1e13 + 1e11, 1e13 + place - 1)",
        f"{_LINE}a_parked_waiter_leaves_no_place_idle",
    ),
    bug(
        "presence never ends: a dead waiter blocks the line",
        _IN_LINE,
        "each(-now, -1e12,",
        "each(0.5, 0.5,",
        f"{_LINE}an_absent_waiter_is_passed_over_at_once",
    ),
    bug(
        "a grant forgets the place that it used up",
        _ACQUIRE,
        "    put(ticket + 3e13, 'w' .. owner)\n",
        "",
        f"{_LINE}a_grant_given_back_has_its_old_place",
    ),
    # two attempts of one activity
    bug(
        "an attempt that parks or leaves takes the other one's presence away",
        _IN_LINE,
        "  if #attempts == 0 then\n",
        "  if true then\n",
        f"{_TWO}who_came_later_overtakes_no_attempt",
    ),
    bug(
        "a new attempt counts its dead predecessor as present",
        _IN_LINE,
        "tonumber(number) >= attempt and",
        "",
        f"{_TWO}a_later_attempt_takes_over",
    ),
    bug(
        "a stalled attempt ends the presence of the one after it",
        _IN_LINE,
        "tonumber(number) >= attempt and",
        "tonumber(number) <= attempt and",
        f"{_TWO}who_came_later_overtakes_no_attempt",
    ),
    bug(
        "a grant to one attempt takes the place of the other",
        _ACQUIRE,
        "    step_out(waiter, ticket, others(ticket, present, owner, attempt), ticket)\n",
        "    drop_waiter(waiter, ticket)\n",
        f"{_TWO}a_grant_to_the_stalled_one_costs_no_place",
    ),
    bug(
        "of two places the later one is kept",
        _PARK,
        "place < ticket) then",
        "true) then",
        f"{_TWO}a_grant_to_the_stalled_one_costs_no_place",
    ),
    bug(
        "presences of attempts do not move with the clock",
        _IN_LINE,
        "local ends = -present - early",
        "local ends = 1.8e12 + 15000 - early",
        f"{_TWO}presences_move_with_the_clock",
    ),
    bug(
        "an attempt that holds the lock is not known by its waiter",
        _ACQUIRE,
        "string.sub(holder, 2, 17)",
        "string.sub(holder, 3, 18)",
        "test_fail_fast.py::test_its_own_attempts_are_known",
    ),
    # wake-ups
    bug(
        "publishing without pcall: a missing right leaves a release half done",
        _IN_LINE,
        "redis.pcall('PUBLISH'",
        "redis.call('PUBLISH'",
        f"{_ON_REDIS}without_the_right_to_publish_nothing_leaks",
    ),
    bug(
        "only one waiter is woken, however many slots are free",
        _IN_LINE,
        "'LIMIT', 0, free)",
        "'LIMIT', 0, 1)",
        f"{_WAKEUPS}each_release_wakes_as_many_as_there_are_free_places",
    ),
    bug(
        "a waiter that was woken and leaves wakes nobody in its place",
        _RELEASE,
        "\nhand_on(limit, noted(longest), queue)\n",
        "\nif expiry then hand_on(limit, noted(longest), queue) end\n",
        f"{_WAKEUPS}who_leaves_or_parks_passes_the_call_on",
    ),
    # failover
    bug(
        "no grace when another primary has taken over",
        _ACQUIRE,
        "    grace = longest\n",
        "    grace = 0\n",
        f"{_FAILOVER}nothing_is_granted_for_one_lease",
    ),
    bug(
        "the grace is as long as the lease of who asks, not as the longest",
        _ACQUIRE,
        "math.max(noted(longest) or 0, lease_ms, tonumber(ARGV[8]))",
        "lease_ms",
        f"{_FAILOVER}the_longest_lease_counts",
    ),
    bug(
        "a short lease makes the lock forget that there were longer ones",
        _ACQUIRE,
        "noted(longest), '#L'",
        "noted(lease_ms), '#L'",
        f"{_FAILOVER}a_short_lease_does_not_shorten_the_grace",
    ),
    # who cannot use a grant now
    bug(
        "one that asks to be parked is granted the lock",
        _ACQUIRE,
        "if grace == 0 and free > rank and presence_ms >= 0 then",
        "if grace == 0 and free > rank then",
        f"{_LINE}who_cannot_use_a_grant_stands_in_line_parked",
    ),
    bug(
        "one that asks to be parked stays present",
        _ACQUIRE,
        "if presence_ms > 0 then\n    attempts",
        "if true then\n    attempts",
        f"{_LINE}who_cannot_use_a_grant_passes_a_call_on",
    ),
)
