"""The lease of a job on its tables: who has it, who waits, and what neither may conclude."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from streaming.delta.log.claim import LeaseClaim, LockClaim, claim_of
from streaming.delta.store import lease as module
from streaming.delta.store import objects
from streaming.delta.store.lease import (
    NONE_YET,
    NUMBERS_LEFT,
    JobLease,
    LeaseWatch,
    Renewals,
    holder_of,
    newest_number,
    numbers_below,
)
from streaming.delta.store.place import StoreError
from streaming.errors import ConfigurationError, TableRefused
from streaming.locks import Lock

SECONDS = 15.0
QUERIES = ("replication", "samples", "incidents")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Pair:
    """An active job and a standby, whose clocks have nothing in common."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, Clock()
        self.active, self.standby = JobLease(folder, SECONDS), JobLease(folder, SECONDS)
        self.watch = LeaseWatch(self.standby, self.clock)

    def looks(self, seconds: float) -> bool:
        """Let the standby look each second; return whether it took the lease."""
        for _ in range(int(seconds)):
            self.clock.now += 1.0
            if self.watch.take_if_lapsed():
                return True
        return False


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    made = Pair(tmp_path / "_lease")
    made.active.take()
    assert not made.watch.take_if_lapsed()
    return made


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """Take the store away, and bring it back."""

    def failing(*_: object) -> object:
        raise StoreError("the store does not answer")

    def switch(is_away: bool) -> None:  # noqa: FBT001 - a switch
        for verb in ("create", "delete", "get", "head", "names_below"):
            monkeypatch.setattr(module, verb, failing if is_away else getattr(objects, verb))

    yield switch
    switch(False)


def test_a_standby_takes_over_a_whole_lease_after_the_last_number_and_not_before(pair: Pair) -> None:
    assert not pair.looks(SECONDS - 1)
    assert pair.looks(2)
    with pytest.raises(TableRefused, match=r"another job, process \d+ on .*, has taken over the tables below .* stops"):
        pair.active.renew()


def test_numbers_that_come_keep_a_standby_waiting_and_do_not_accumulate(pair: Pair) -> None:
    for _ in range(50):
        assert not pair.looks(5)
        pair.active.renew()
        assert len(numbers_below(pair.folder)) <= NUMBERS_LEFT
    assert newest_number(pair.folder) == 50


def test_what_earlier_jobs_have_left_is_deleted(pair: Pair) -> None:
    for number in range(100, 150):
        objects.create(pair.folder / f"{number:010}", b"left by a job that was killed")
    pair.standby.take()
    assert numbers_below(pair.folder) == [147, 148, 149, 150]


def test_a_job_that_does_not_stand_by_takes_the_lease_at_once(pair: Pair) -> None:
    restarted = JobLease(pair.folder, SECONDS)
    before = restarted.take()
    assert before is not None
    assert before.pid > 0
    restarted.renew()
    with pytest.raises(TableRefused):
        pair.active.renew()
    assert not pair.looks(SECONDS - 1)


def test_of_several_standbys_one_takes_over(pair: Pair) -> None:
    standbys = [LeaseWatch(JobLease(pair.folder, SECONDS), pair.clock) for _ in range(8)]
    together = Barrier(len(standbys))
    assert not any(each.take_if_lapsed() for each in standbys)
    for _ in range(int(SECONDS) - 1):
        pair.clock.now += 1
        assert not any(each.take_if_lapsed() for each in standbys)
    pair.clock.now += 1

    def take(standby: LeaseWatch) -> bool:
        together.wait()
        return standby.take_if_lapsed()

    with ThreadPoolExecutor(len(standbys)) as threads:
        assert sum(threads.map(take, standbys)) == 1


def test_a_job_that_was_paused_for_long_finds_out_although_its_next_number_is_free_again(pair: Pair) -> None:
    assert pair.looks(SECONDS + 1)
    for _ in range(300):
        pair.standby.renew()
    numbers = numbers_below(pair.folder)
    assert min(numbers) > 1
    with pytest.raises(TableRefused, match="has taken over"):
        pair.active.renew()
    assert numbers_below(pair.folder) == numbers


def test_a_standby_that_was_paused_between_its_look_and_its_take_does_not_take_over(pair: Pair) -> None:
    assert pair.looks(SECONDS + 1)
    for _ in range(300):
        pair.standby.renew()
    assert not JobLease(pair.folder, SECONDS).take_after(0)
    assert newest_number(pair.folder) == 301


def test_a_store_that_answers_nobody_for_an_hour_ends_no_lease(pair: Pair, away: Callable[[bool], None]) -> None:
    assert not pair.looks(SECONDS - 1)
    away(True)
    with pytest.raises(OSError, match="does not answer"):
        pair.active.renew()
    pair.clock.now += 1800
    with pytest.raises(OSError, match="does not answer"):
        pair.watch.take_if_lapsed()
    pair.clock.now += 1800
    away(False)
    assert not pair.looks(SECONDS)
    pair.active.renew()
    assert not pair.looks(SECONDS)
    assert pair.looks(1)


def test_a_standby_that_was_suspended_counts_only_what_it_has_seen(pair: Pair) -> None:
    pair.looks(2)
    pair.clock.now += 3600
    assert not pair.watch.take_if_lapsed()
    assert not pair.looks(SECONDS - 5)
    pair.active.renew()
    assert not pair.looks(SECONDS - 1)


def test_numbers_that_came_and_went_while_a_standby_was_suspended_are_seen_before_it_takes_over(pair: Pair) -> None:
    for _ in range(100):
        pair.active.renew()
    assert not pair.looks(SECONDS + 1)
    pair.active.renew()
    assert not pair.looks(SECONDS - 2)


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_clocks_of_both_machines_may_be_hours_apart(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.0 + hours * 3600)
    monkeypatch.setattr("time.time_ns", lambda: (1_700_000_000 + hours * 3600) * 10**9)
    for _ in range(10):
        assert not pair.looks(5)
        pair.active.renew()
    assert not pair.looks(SECONDS)
    assert pair.looks(1)


def test_the_answer_to_a_renewal_may_be_lost(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def created_and_lost(place: Path, content: bytes) -> bool:
        objects.create(place, content)
        raise StoreError("the answer was lost")

    with monkeypatch.context() as losing:
        losing.setattr(module, "create", created_and_lost)
        with pytest.raises(OSError, match="lost"):
            pair.active.renew()
    pair.active.renew()
    pair.active.renew()
    assert newest_number(pair.folder) == 2


def test_a_standby_waits_as_long_as_the_active_job_has_asked_for(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    JobLease(tmp_path, 60.0).take()
    assert not pair.looks(60)
    assert pair.looks(3)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"host": 1}', b"\xff"])
def test_a_number_that_cannot_be_read_counts_as_that_of_an_unknown_machine(pair: Pair, content: bytes) -> None:
    objects.create(pair.folder / f"{1:010}", content)
    assert not pair.looks(SECONDS)
    assert pair.looks(2)
    objects.create(pair.folder / f"{3:010}", content)
    with pytest.raises(TableRefused, match="an unknown machine"):
        pair.standby.renew()


def test_tables_that_were_wiped_end_no_lease_and_a_standby_follows_the_new_numbers(pair: Pair) -> None:
    for _ in range(10):
        pair.active.renew()
    assert not pair.looks(1)
    for number in numbers_below(pair.folder):
        objects.delete(pair.folder / f"{number:010}")
    pair.active.renew()
    assert not pair.looks(SECONDS)
    for number in numbers_below(pair.folder):
        objects.delete(pair.folder / f"{number:010}")
    again = JobLease(pair.folder, SECONDS)
    assert again.take() is None
    for _ in range(4):
        assert not pair.looks(5)
        again.renew()
    assert pair.looks(SECONDS + 2)


def test_a_first_standby_waits_although_there_is_no_number(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    assert newest_number(tmp_path) == NONE_YET
    assert not pair.looks(SECONDS)
    assert pair.looks(1)
    assert numbers_below(tmp_path) == [0]


def test_after_a_job_has_stopped_in_order_a_standby_does_not_wait(pair: Pair) -> None:
    said = list[str]()
    renewals = Renewals(pair.active, said.append)
    renewals.start()
    renewals.stop()
    assert pair.looks(1)
    assert said == []


def test_a_job_that_has_lost_its_lease_releases_none(tmp_path: Path) -> None:
    active = JobLease(tmp_path, 0.03)
    active.take()
    JobLease(tmp_path, SECONDS).take()
    renewals = Renewals(active, print)
    renewals.start()
    renewals.join(10)
    assert renewals.refusal is not None
    renewals.stop()
    assert newest_number(tmp_path) == 1


def test_a_renewal_that_fails_is_tried_again_and_reported_once_it_has_failed_for_a_lease(
    tmp_path: Path, away: Callable[[bool], None]
) -> None:
    said = list[str]()
    active = JobLease(tmp_path, 0.06)
    active.take()
    away(True)
    renewals = Renewals(active, said.append)
    renewals.start()
    renewals.join(0.3)
    away(False)
    renewals.join(0.3)
    assert renewals.refusal is None
    assert renewals.is_alive()
    renewals.stop()
    assert newest_number(tmp_path) > 1
    assert len(said) == 1
    assert "cannot be renewed, so a standby may begin: the store does not answer" in said[0]


def test_the_content_is_for_people(pair: Pair) -> None:
    content = json.loads((pair.folder / f"{0:010}").read_text())
    assert content.keys() == {"host", "pid", "lease_seconds", "token"}
    assert content["lease_seconds"] == SECONDS


def test_a_host_of_control_characters_does_nothing_to_a_terminal(pair: Pair) -> None:
    content = {"host": "\x1b[31mx", "pid": 1, "lease_seconds": 15, "token": "t"}
    objects.create(pair.folder / f"{1:010}", json.dumps(content).encode())
    assert str(holder_of(pair.folder, 1)) == r"process 1 on \x1b[31mx"


def test_a_folder_with_locks_is_locked_and_one_without_has_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(claim_of(tmp_path, QUERIES, SECONDS, print), LockClaim)
    monkeypatch.setattr("streaming.locks.try_lock", lambda _: Lock.NOT_THERE)
    claim = claim_of(tmp_path, QUERIES, SECONDS, print)
    assert isinstance(claim, LeaseClaim)
    assert claim.take() is None
    assert numbers_below(tmp_path / "_lease") == [0]
    claim.release()


def test_a_folder_that_cannot_be_written_is_refused_by_the_name_of_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(ConfigurationError, match=r"Permission denied; point tables\.directory"):
        claim_of(tmp_path, QUERIES, SECONDS, print).take()


def test_jobs_of_different_queries_have_leases_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.locks.try_lock", lambda _: Lock.NOT_THERE)
    one, other = (claim_of(tmp_path, [name], SECONDS, print) for name in ("replication", "samples"))
    assert one.take() is other.take() is None
    assert {path.name for path in tmp_path.iterdir()} == {"_lease-replication", "_lease-samples"}
    one.release()
    other.release()


def test_a_standby_of_a_folder_has_it_as_soon_as_the_lock_is_free(tmp_path: Path) -> None:
    active, standby = LockClaim(tmp_path, QUERIES), LockClaim(tmp_path, QUERIES)
    active.take()
    assert not standby.take_if_free()
    active.release()
    assert standby.take_if_free()
    with pytest.raises(TableRefused, match="another job writes the tables"):
        active.take()
