"""Stories in which one liveness invariant each is broken, for the tests of the checker."""

from handmade_history import LEASE, Story, breaks


@breaks("L1")
def not_freed(story: Story) -> None:
    story.take("one", process=8)
    story.note("killed", victim=8)
    story.queue("two")
    for _ in range(9):
        story.time += 1
        story.queue("two")


@breaks("L1")
def a_long_lease(story: Story) -> None:
    story.take("one", longer=1)


@breaks("L2")
def refused(story: Story) -> None:
    story.queue("one")


@breaks("L2")
def nobody_asks(story: Story) -> None:
    story.take("one")
    story.queue("two")
    story.release("one")
    story.time += 1.7
    story.take("two")


@breaks("L2")
def nobody_told(story: Story) -> None:
    story.take("one")
    story.queue("two")
    story.release("one", wakes=False)


@breaks("L3")
def present_for_too_long(story: Story) -> None:
    story.take("one")
    story.queue("two", present=1)


@breaks("L4")
def a_new_ticket(story: Story) -> None:
    story.take("one")
    story.queue("two")
    story.queue("two", ticket=3e11 + 99)


@breaks("L5")
def nothing_goes_on(story: Story) -> None:
    story.take("one")
    story.queue("two")
    story.release("one")
    story.breaks_for(1)
    story.time += 1.7
    story.queue("two")
    story.take("two")


@breaks("L6")
def lost_for_nothing(story: Story) -> None:
    story.take("one")
    story.time += LEASE
    story.note("lose", "one", reason="its lease ended")
    story.release("one")


@breaks("L6")
def lost_by_a_short_outage(story: Story) -> None:
    story.take("one")
    story.breaks_for(0.5)
    story.time += LEASE
    story.note("lose", "one", reason="its lease ended")
    story.release("one")


@breaks("L7")
def never_given_back(story: Story) -> None:
    story.take("one")


@breaks("L7")
def given_back_twice(story: Story) -> None:
    story.take("one")
    story.release("one")
    story.release("one", answer={"yes": True})


@breaks("L8")
def still_in_line(story: Story) -> None:
    story.take("one")
    story.queue("two")
    story.leave("two", did=[])


@breaks("L8")
def never_left(story: Story) -> None:
    story.take("one")
    story.queue("two")
    story.release("one")


@breaks("L9")
def something_left(story: Story) -> None:
    story.take("one")
    story.queue("two")
    story.release("one")


@breaks("L9")
def without_an_end(story: Story) -> None:
    story.take("one")
    story.release("one")
    for row in story.rows:
        row.did = [change for change in row.did if change[0] != "ttl"]


@breaks("L10")
def starved(story: Story) -> None:
    story.take("one")
    story.queue("patient")
    for _ in range(12):
        story.time += 1
        story.queue("patient")
        story.renew("one")
    story.limit = 2
    story.take("patient")


@breaks("audit")
def somebody_is_not_audited(story: Story) -> None:
    story.take("one")
    story.rows.clear()
    story.release("one")


@breaks("audit")
def a_command_unknown(story: Story) -> None:
    story.take("one", row={"unknown": "ZPOPMIN"})
