"""Who waits inside a worker."""

import threading

from lock_interceptor.room import WaitingRoom


def test_room_is_bounded() -> None:
    """Whoever is farther from the front than all who wait here has to come back."""
    room = WaitingRoom(2)

    assert room.enter(1) is not None
    assert room.enter(2) is not None
    assert room.enter(3) is None
    assert room.occupied == 2


def test_nearer_waiter_gets_the_seat_of_the_farthest() -> None:
    """The seats belong to those who are nearest to their turn, and each is asked to leave once."""
    room, asked = WaitingRoom(2), []
    for turn in (5, 9):
        seat = room.enter(turn)
        assert seat is not None
        seat.on_eviction = lambda turn=turn: asked.append(turn)

    assert room.enter(1) is not None
    assert asked == [9]
    assert room.enter(2) is not None
    assert asked == [9, 5]
    assert room.enter(3) is None


def test_turns_move_on() -> None:
    """What counts is the turn as it was told last."""
    room = WaitingRoom(2)
    first, second = room.enter(5), room.enter(9)
    assert first is not None
    assert second is not None
    second.turn = 1

    assert room.enter(2) is not None
    assert (first.evicted, second.evicted) == (True, False)


def test_nobody_leaves_for_what_was_known_long_ago() -> None:
    """Whoever was told its turn long ago asks again first; then the farthest leaves, be it the newcomer."""
    room, asked = WaitingRoom(2), []
    first, second = room.enter(50), room.enter(90)
    assert first is not None
    assert second is not None
    for seat in (first, second):
        seat.told -= 60
        seat.on_eviction = lambda seat=seat: asked.append(seat)
    newcomer = room.enter(2)

    assert newcomer is not None
    assert asked == [second]
    assert not second.evicted
    room.tell(second, 1)
    assert asked == [second, first]
    assert not first.evicted
    room.tell(first, 3)
    assert (first.evicted, second.evicted, newcomer.evicted) == (True, False, False)


def test_guesses_and_estimates_are_not_compared() -> None:
    """While nobody knows how long holders take, turns are guesses: whoever made one asks again first."""
    room = WaitingRoom(1)
    early = room.enter(5, guessed=True)
    assert early is not None
    late = room.enter(4)
    assert late is not None

    assert not early.evicted
    room.tell(early, 1)
    assert (early.evicted, late.evicted) == (False, True)


def test_who_cannot_come_back_always_gets_a_seat_and_keeps_it() -> None:
    """An attempt that a yield would fail is let in over the bound and never sent away."""
    room = WaitingRoom(1)
    stays = room.enter(100, stays=True)
    assert stays is not None

    assert room.enter(1) is None
    assert room.enter(200, stays=True) is not None
    assert stays.evicted is False
    assert room.occupied == 2


def test_seat_is_free_again_after_leaving() -> None:
    """A seat that is given back, twice even, can be taken by the next."""
    room, changes = WaitingRoom(1), []
    room.on_change = lambda: changes.append(room.occupied)
    seat = room.enter(1)
    assert seat is not None
    room.leave(seat)
    room.leave(seat)

    assert room.enter(2) is not None
    assert changes == [1, 0, 0, 1]


def test_room_is_safe_to_use_from_several_threads() -> None:
    """Whatever comes and goes at once, nobody is counted twice or forgotten."""
    room, in_all = WaitingRoom(5), []

    def come_and_go() -> None:
        for turn in range(300):
            seat = room.enter(turn % 7)
            if seat is not None:
                in_all.append(room.occupied)
                room.leave(seat)

    threads = [threading.Thread(target=come_and_go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert room.occupied == 0
    assert 1 <= max(in_all) <= 8
