"""Places for bodies: how many there are, and who gets the next one."""

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lock_interceptor.places import BodyPlace, Places


class Waiter:
    """One that waits for a place."""

    def __init__(self, waiting: ExitStack, *needs: Places, urgent: bool = False) -> None:
        self.calls = 0
        self.body = BodyPlace(*needs, urgent=urgent)
        waiting.enter_context(self.body.waiting(self._called))

    def _called(self) -> None:
        self.calls += 1


def running(*needs: Places) -> BodyPlace:
    """A body that runs."""
    body = BodyPlace(*needs)
    assert body.take()
    body.run()
    return body


def in_line(waiting: ExitStack, places: Places, ticket: int, *, present: bool = False) -> Waiter:
    """One that waits for the lock."""
    waiter = Waiter(waiting, places)
    waiter.body.stand("lock", ticket, present=present)
    return waiter


@pytest.fixture
def waiting() -> Iterator[ExitStack]:
    """Who waits until the end of the test."""
    with ExitStack() as stack:
        yield stack


def test_as_many_as_there_are() -> None:
    """A place that is taken is there again when it has been given back, once however often that is said."""
    places = Places(2)
    first, second, third = (BodyPlace(places) for _ in range(3))
    assert [first.take(), second.take(), third.take(), first.take()] == [True, True, False, True]
    first.give_back()
    first.give_back()
    assert third.take()
    assert not BodyPlace(places).take()


def test_all_needs_or_none() -> None:
    """A body that needs a worker and a thread has both or none, so that nobody waits for half of it."""
    worker, threads = Places(2), Places(1)
    blocking = running(threads)
    assert not BodyPlace(worker, threads).take()
    assert worker.taken == 0
    blocking.give_back()
    assert BodyPlace(worker, threads).take()
    assert (worker.taken, threads.taken) == (1, 1)


def test_without_needs_there_is_always_one() -> None:
    """Where a permit comes with each activity nobody waits for a place."""
    body = BodyPlace()
    assert body.want()
    assert not body.full


def test_urgent_ones_then_by_arrival(waiting: ExitStack) -> None:
    """A place goes to one that cannot go on elsewhere, then to who came first, and to one for each place."""
    places = Places(1)
    holder = running(places)
    first, second, urgent = (
        Waiter(waiting, places),
        Waiter(waiting, places),
        Waiter(waiting, places, urgent=True),
    )
    assert not any(each.body.want() for each in (first, second, urgent))
    for expected in (urgent, first, second):
        holder.give_back()
        assert [each.body.taken for each in (first, second, urgent)].count(True) == 1
        assert (expected.body.taken, expected.calls) == (True, 1)
        holder = expected.body


def test_waiters_for_a_lock_go_in_the_order_of_its_line(waiting: ExitStack) -> None:
    """Whoever of them came to the worker first, the one with the lower ticket gets the place."""
    places = Places(1)
    holder = running(places)
    waiters = [in_line(waiting, places, ticket) for ticket in (5, 3, 4)]
    assert not any(each.body.want() for each in waiters)
    order = []
    for _ in waiters:
        holder.give_back()
        (holder,) = (each.body for each in waiters if each.body.taken)
        order.append(holder.ticket)
    assert order == [3, 4, 5]


def test_only_as_many_are_called_as_can_be_granted(waiting: ExitStack) -> None:
    """One whose request is denied waits on without a place, and nobody behind it asks in its stead."""
    places = Places(1)
    holder = running(places)
    waiters = [in_line(waiting, places, ticket) for ticket in range(1, 5)]
    assert not any(each.body.want() for each in waiters)
    holder.give_back()
    waiters[0].body.stand("lock", 1, present=True)
    waiters[0].body.give_back(denied=True)
    assert [each.calls for each in waiters] == [1, 0, 0, 0]
    assert places.taken == 0


def test_one_that_is_first_in_line_is_called_whoever_is_present_behind_it(waiting: ExitStack) -> None:
    """Present waiters with higher tickets do not keep a parked one from its turn."""
    places = Places(1)
    holder = running(places)
    behind = [in_line(waiting, places, ticket, present=True) for ticket in (7, 8)]
    parked = in_line(waiting, places, 2)
    assert not parked.body.want()
    holder.give_back()
    assert (parked.body.taken, [each.calls for each in behind]) == (True, [0, 0])


def test_who_only_asks_does_not_fill_the_worker(waiting: ExitStack) -> None:
    """A present waiter waits for those that ask, and is told at once when one of them is granted its lock."""
    places = Places(1)
    asking = BodyPlace(places)
    assert asking.take()
    waiter = in_line(waiting, places, 1, present=True)
    assert not waiter.body.want()
    assert not waiter.body.full
    asking.run()
    assert (waiter.body.full, waiter.calls, waiter.body.taken) == (True, 1, False)


def test_a_body_that_holds_a_lock_keeps_its_place_when_another_lock_is_busy() -> None:
    """Locks are never held without the place."""
    places = Places(1)
    body = running(places)
    body.give_back(denied=True)
    assert body.taken
    body.give_back()
    assert (body.taken, places.taken, places.running) == (False, 0, 0)


def test_who_leaves_lets_the_next_one_go_first() -> None:
    """One that stops waiting is in nobody's way any more."""
    places = Places(1)
    with ExitStack() as staying, ExitStack() as leaving:
        first, second = in_line(leaving, places, 1, present=True), in_line(staying, places, 2)
        assert not second.body.want()
        assert not first.body.taken
        leaving.close()
        assert second.body.taken


def test_safe_to_use_from_several_threads() -> None:
    """However threads take, wait, are denied and give back, the number holds and no place gets lost."""
    worker, threads = Places(3), Places(2)
    at_once, most, mutex = [0], [0], threading.Lock()

    def work(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - no secret
        for ticket in range(100):
            body = BodyPlace(*(worker, threads)[: 1 + seed % 2])
            called = threading.Event()
            with body.waiting(called.set):
                body.stand("lock", ticket, present=chance.random() < 0.5)
                body.want()
                while not body.taken:
                    assert called.wait(10)
                    called.clear()
            if chance.random() < 0.7:
                body.run()
            with mutex:
                at_once[0] += 1
                most[0] = max(most[0], at_once[0])
            with mutex:
                at_once[0] -= 1
            body.give_back()

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert most[0] <= 3
    assert (worker.taken, worker.running, threads.taken, threads.running) == (0, 0, 0, 0)
