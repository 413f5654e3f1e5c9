"""Offsets and leader epochs of a log, and where two logs part: what a leader answers, and where the follower cuts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.model.constants import Error
from streaming.model.storage.log import EpochEntry, Log
from streaming.model.storage.replica import TruncationPoint, check_fetch, truncation_point


def log_of(end: int, *epochs: EpochEntry, start: int = 0) -> Log:
    log = Log()
    log.append_fetched(end, epochs)
    log.start_at(start)
    return log


@pytest.mark.parametrize(
    ("offset", "last_fetched_epoch", "expected"),
    [
        (30, 5, None),
        (25, 5, None),
        (20, 3, None),
        (15, 3, None),
        (25, 3, (3, 20)),
        (31, 5, (5, 30)),
        (20, 4, (3, 20)),
        (40, 6, Error.OFFSET_OUT_OF_RANGE),
        (4, 1, Error.OFFSET_OUT_OF_RANGE),
        (4, 2, Error.OFFSET_OUT_OF_RANGE),
        (12, -1, None),
        (4, -1, Error.OFFSET_OUT_OF_RANGE),
        (31, -1, Error.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_leader_checks_the_position_of_a_follower(
    offset: int, last_fetched_epoch: int, expected: EpochEntry | Error | None
) -> None:
    leader = log_of(30, (1, 0), (3, 10), (5, 20), start=5)
    assert expected == check_fetch(leader, offset, last_fetched_epoch)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param((3, 18), TruncationPoint(18), id="same epoch, the leader's ended earlier"),
        pytest.param((3, 25), TruncationPoint(20), id="same epoch, the own ended earlier"),
        pytest.param((5, 40), TruncationPoint(30), id="same epoch, the own is still open"),
        pytest.param((4, 25), TruncationPoint(20, is_complete=False), id="an epoch this log never had"),
        pytest.param((2, 12), TruncationPoint(10, is_complete=False), id="an earlier one it never had"),
        pytest.param((7, 12), TruncationPoint(12), id="an epoch above everything here"),
        pytest.param((-1, -1), TruncationPoint(8), id="the leader does not know it: the high watermark"),
        pytest.param((-1, 17), TruncationPoint(17), id="version 0: an end, but of which epoch"),
        pytest.param((-1, 99), TruncationPoint(30), id="version 0: never beyond the own log"),
    ],
)
def test_a_follower_cuts_where_the_logs_part(told: EpochEntry, expected: TruncationPoint) -> None:
    follower = log_of(30, (1, 0), (3, 10), (5, 20))
    assert expected == truncation_point(follower, 8, told)


def test_an_epoch_that_wrote_nothing_gives_way() -> None:
    log = log_of(5, (1, 0))
    log.begin_epoch(2, 5)
    log.begin_epoch(3, 5)
    assert log.epochs == [(1, 0), (3, 5)]


@pytest.mark.parametrize(
    ("offset", "end", "epochs"),
    [
        (30, 30, [(1, 0), (3, 10), (5, 20)]),
        (25, 25, [(1, 0), (3, 10), (5, 20)]),
        (20, 20, [(1, 0), (3, 10)]),
        (15, 15, [(1, 0), (3, 10)]),
        (0, 0, []),
    ],
)
def test_truncation_from_the_end_drops_epochs_that_start_there_or_later(
    offset: int, end: int, epochs: list[EpochEntry]
) -> None:
    log = log_of(30, (1, 0), (3, 10), (5, 20))
    log.truncate(offset)
    assert (end, epochs) == (log.end, log.epochs)


def test_truncation_drops_an_epoch_that_wrote_nothing_even_at_the_log_end() -> None:
    log = log_of(30, (1, 0), (3, 10))
    log.begin_epoch(5, 30)
    log.truncate(30)
    assert log.epochs == [(1, 0), (3, 10)]


@pytest.mark.parametrize(
    ("offset", "epochs"),
    [
        (0, [(1, 0), (3, 10), (5, 20)]),
        (5, [(1, 5), (3, 10), (5, 20)]),
        (10, [(3, 10), (5, 20)]),
        (15, [(3, 15), (5, 20)]),
        (30, [(5, 30)]),
    ],
)
def test_truncation_from_the_start_rebases_the_epoch_that_remains(offset: int, epochs: list[EpochEntry]) -> None:
    log = log_of(30, (1, 0), (3, 10), (5, 20))
    log.start_at(offset)
    assert (offset, 30, epochs) == (log.start, log.end, log.epochs)


def test_a_log_that_restarts_has_nothing() -> None:
    log = log_of(30, (1, 0))
    log.restart_at(70)
    assert (log.start, log.end, log.epochs) == (70, 70, [])


tails = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=3)


@given(shared=st.lists(st.integers(1, 5), max_size=4), leader=tails, follower=tails)
def test_asking_again_ends_at_the_common_prefix(
    shared: list[int], leader: list[tuple[int, int]], follower: list[tuple[int, int]]
) -> None:
    """Two logs with a common past and different tails (odd and even epochs) agree once the follower has truncated."""
    ours, theirs = (grown(shared, tail, parity) for parity, tail in enumerate((leader, follower)))
    ours.begin_epoch(1_000, ours.end)
    for _ in range(20):
        verdict = check_fetch(ours, theirs.end, theirs.last_epoch)
        if verdict is None:
            break
        assert not isinstance(verdict, Error)
        theirs.truncate(truncation_point(theirs, 0, verdict).offset)
    else:
        pytest.fail("the logs never agreed")
    assert sum(shared) == theirs.end


def grown(shared: list[int], tail: list[tuple[int, int]], parity: int) -> Log:
    log, epoch = Log(), 0
    for count in shared:
        epoch += 2
        log.begin_epoch(epoch, log.end)
        log.append(count)
    for growth, count in tail:
        epoch += 2 * growth
        log.begin_epoch(epoch + parity, log.end)
        log.append(count)
    return log
