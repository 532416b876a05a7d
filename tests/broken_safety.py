"""Stories in which one safety invariant each is broken, for the tests of the checker."""

from handmade_history import LEASE, Story, breaks


@breaks("S1")
def too_many_holders(story: Story) -> None:
    story.take("one")
    story.take("two")


@breaks("S1")
def a_clock_of_its_own(story: Story) -> None:
    story.take("one", row={"us": story.us - 5_000_000})
    story.release("one", row={"us": story.us - 5_000_000})


@breaks("S2")
def two_believe(story: Story) -> None:
    story.take("one")
    story.release("one")
    story.take("two")
    hold = next(note for note in story.notes if note.what == "hold")
    released = next(n for n in story.notes if n.what == "call" and n.more["op"] == "release")
    story.notes.remove(released)  # it believes until its lease ends
    assert hold.owner == "one"


@breaks("S2")
def ended_at_the_server_first(story: Story) -> None:
    story.take("one", longer=-2500)
    story.time += 1
    story.queue("two")
    story.release("one")


@breaks("S2")
def no_grace(story: Story) -> None:
    story.take("one")
    story.release("one")
    story.fail_over()
    story.take("two")


@breaks("S2")
def a_split_brain(story: Story) -> None:
    story.take("one")
    story.fail_over(forgets="one")
    story.take("two", body=False)


@breaks("S3")
def works_on(story: Story) -> None:
    story.take("one")
    story.breaks_for(LEASE)
    story.note("lose", "one", reason="its lease ended")
    story.take("two")
    story.time += 1.5
    story.renew("two")
    story.note("body_end", "one")
    story.release("two")
    story.release("one", body=False)


@breaks("S3")
def works_without_a_lease(story: Story) -> None:
    story.grant("one")
    story.note("body", "one")
    story.notes = [note for note in story.notes if note.what != "answer"]


@breaks("S4")
def a_lower_token(story: Story) -> None:
    story.take("one")
    story.release("one")
    story.take("two", token=story.tokens["one"] - 1)


@breaks("S4")
def a_token_twice(story: Story) -> None:
    story.take("one")
    story.release("one")
    story.take("two", token=story.tokens["one"])


@breaks("S4")
def clients_see_a_lower_token(story: Story) -> None:
    a_lower_token(story)
    story.rows.clear()


@breaks("S5")
def executed_twice(story: Story) -> None:
    story.take("one", twice=True)


@breaks("S5")
def told_another_token(story: Story) -> None:
    story.take("one", answer={"token": 5, "slot": 0})


@breaks("S5")
def asked_again_and_got_another(story: Story) -> None:
    story.take("one")
    story.grant("one", token=story.us)


@breaks("S5")
def a_second_grant(story: Story) -> None:
    story.take("one")
    story.rows[0].did = [change for change in story.rows[0].did if change[1] != "hone"]
    story.grant("one")


@breaks("S6")
def releases_for_another(story: Story) -> None:
    story.limit = 2
    story.take("one")
    story.take("two")
    story.release("one", also=[["-", "htwo"], ["-", "ttwo"], ["-", "stwo"]])


@breaks("S6")
def parks_another(story: Story) -> None:
    story.take("one")
    story.queue("two")
    story.queue("three", also=[["-", "qfor-two"], ["-", "pfor-two"], ["+", "cfor-two", "10300000000001"]])


@breaks("S6")
def told_it_was_held(story: Story) -> None:
    story.take("one")
    story.leave("two", answer={"yes": True})


@breaks("S6")
def a_release_creates(story: Story) -> None:
    story.leave("one", also=[["+", "#x", "-4000000000000001"]])


@breaks("S7")
def revived(story: Story) -> None:
    story.take("one")
    story.time += LEASE + 1
    story.renew("one", revives=True, purges=False, believed=False)


@breaks("S7")
def created_by_renewing(story: Story) -> None:
    story.take("one")
    story.release("one")
    story.renew("one", revives=True, believed=False)


@breaks("S7")
def told_renewed(story: Story) -> None:
    story.take("one")
    story.release("one")
    story.renew("one", answer={"yes": True})


@breaks("S7")
def believes_again(story: Story) -> None:
    story.take("one")
    story.note("lose", "one", reason="whatever")
    story.renew("one")


@breaks("S8")
def believes_too_long(story: Story) -> None:
    story.take("one", until=story.time + LEASE)


@breaks("S8")
def believes_too_long_after_renewing(story: Story) -> None:
    story.take("one")
    story.renew("one", until=story.time + LEASE)


@breaks("S8")
def a_late_answer(story: Story) -> None:
    story.take("one", travels=LEASE)


@breaks("S8")
def a_short_lease(story: Story) -> None:
    story.take("one", longer=-1)


@breaks("S9")
def overtaken(story: Story) -> None:
    story.take("one")
    story.queue("two")
    story.queue("three")
    story.release("one")
    story.take("three")


@breaks("S9")
def a_newcomer_first(story: Story) -> None:
    story.take("one")
    story.queue("two")
    story.release("one")
    story.take("three")


@breaks("S10")
def over_a_lowered_limit(story: Story) -> None:
    for owner in ("one", "two"):
        story.take(owner, limit=3)
    story.take("three", limit=2)


@breaks("S10")
def nobody_woken(story: Story) -> None:
    story.take("one")
    story.queue("two")
    story.queue("three")
    story.take("two", limit=3)


@breaks("S11")
def another_key(story: Story) -> None:
    story.take("one", row={"foreign": "ZADD lock:1:{app:other}"})


@breaks("S11")
def two_names_for_one_key(story: Story) -> None:
    story.take("one", name=["app", "lock", "a"])
    story.release("one", name=["app:lock", "a", None])


@breaks("S12")
def a_slot_twice(story: Story) -> None:
    story.limit = 2
    story.take("one")
    story.take("two", slot=0)


@breaks("S12")
def a_slot_too_high(story: Story) -> None:
    story.take("one", slot=1)


@breaks("S12")
def a_late_write(story: Story) -> None:
    for token in (5, 6, 5):
        story.note("write", resource="table", slot=0, token=token, accepted=True)
