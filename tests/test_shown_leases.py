"""`ShownLeases`: what a body in another process knows of its lease."""

import math
import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from lock_interceptor import LockLost, current_lease
from lock_interceptor.lease import Lease, clock
from lock_interceptor.worker.bodies import CarriesLeases
from lock_interceptor.worker.shown_leases import ShownLeases


def lease(*, lasts: float = 60.0, name: str = "db") -> Lease:
    now = clock()
    return Lease(name, 7, 0, expires=now + lasts, deadline=now + 3600)


def ask(name: str = "db") -> tuple[bool, float]:
    """The body: what it knows of its lease."""
    found = current_lease(name)
    return found.lost, found.remaining


def elsewhere(shown: ShownLeases, *leases: Lease, name: str = "db") -> tuple[bool, float]:
    """Ask in a process that shares nothing with this one."""
    carried = CarriesLeases(ask, tuple(each.for_other_process() for each in leases), shown.path)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(carried, name).result()


def test_as_long_as_in_the_worker() -> None:
    """The body knows when its lease ends, not only its deadline."""
    ours = lease(lasts=60)
    with ShownLeases([ours]) as shown:
        lost, remaining = elsewhere(shown, ours)
    assert not lost
    assert 0 < remaining <= 60


def test_follows_renewals_and_losses() -> None:
    """Each lease of several moves on its own: a renewal lengthens it, and a loss ends it for good."""
    renewed, lost, ended = lease(name="renewed"), lease(name="lost"), lease(name="ended", lasts=0.05)
    carried = [each.for_other_process() for each in (renewed, lost, ended)]
    with ShownLeases([renewed, lost, ended]) as shown, ShownLeases.watched(shown.path, carried):
        assert renewed.extend(clock() + 600)
        lost.lose("gone")
        assert carried[0].remaining > 500
        assert (carried[0].lost, carried[1].lost) == (False, True)
        while not ended.lost:
            assert not carried[2].lost or ended.lost
        assert carried[2].lost
        with pytest.raises(LockLost, match="before a renewal got through"):
            carried[2].raise_if_lost()


def test_a_late_renewal_does_not_undo_a_loss() -> None:
    """The thread that renews and the one that finds the loss may write at the same moment."""
    ours = lease()
    carried = ours.for_other_process()
    with ShownLeases([ours]) as shown, ShownLeases.watched(shown.path, [carried]):
        ours.lose("gone")
        shown._show(1, clock() + 600)  # noqa: SLF001 - a renewal that had looked just before
        assert carried.lost
    for _ in range(50):
        ours = lease()
        carried = ours.for_other_process()
        with ShownLeases([ours]) as shown, ShownLeases.watched(shown.path, [carried]):
            renewing = threading.Thread(target=lambda: [ours.extend(clock() + 600) for _ in range(50)])  # noqa: B023
            renewing.start()
            ours.lose("gone")
            renewing.join()
            assert carried.lost


def test_says_when_the_body_has_begun() -> None:
    """Until then somebody has to heartbeat for it; a body that cannot begin any more is not waited for."""
    ours = lease()
    with ShownLeases([ours]) as shown:
        assert not shown.seen()
        elsewhere(shown, ours)
        assert shown.seen()
    assert shown.seen()


def test_no_body_begins_under_a_lease_that_was_lost() -> None:
    """A call that waited in the queue of its pool for longer than its lease does nothing."""
    ours, calls = lease(), list[str]()
    with ShownLeases([ours]) as shown:
        ours.lose("gone")
        carried = CarriesLeases(calls.append, (ours.for_other_process(),), shown.path)
        with pytest.raises(LockLost):
            carried("began")
    assert calls == []


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file stays, whether the body ran, never ran, or its worker died meanwhile; nor do descriptors."""
    monkeypatch.setattr("lock_interceptor.worker.shown_leases._MEMORY", str(tmp_path))
    open_files = _open_files()
    ours = lease()
    with ShownLeases([ours]) as shown:
        assert len(list(tmp_path.iterdir())) == 1
        with ShownLeases.watched(shown.path, [ours.for_other_process()]):
            # should both processes be killed now, nothing would have to be cleaned up
            assert list(tmp_path.iterdir()) == []
    with ShownLeases([ours]):
        pass
    assert list(tmp_path.iterdir()) == []
    assert _open_files() == open_files


def test_a_worker_that_is_gone(tmp_path: Path) -> None:
    """A body whose attempt was given up before it began does not begin."""
    carried = CarriesLeases(ask, (lease(),), str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError):
        carried()


def test_only_for_its_owner() -> None:
    """Nobody else on the machine can lengthen a lease."""
    with ShownLeases([lease()]) as shown:
        assert Path(shown.path).stat().st_mode & 0o077 == 0


def test_after_the_body() -> None:
    """What a body leaves behind, such as a thread with its lease, is told that it holds nothing."""
    ours = lease()
    carried = ours.for_other_process()
    with ShownLeases([ours]) as shown, ShownLeases.watched(shown.path, [carried]):
        assert not carried.lost
    assert carried.lost
    assert carried.end == -math.inf
