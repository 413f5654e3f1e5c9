"""Offsets and leader epochs of one log."""

from __future__ import annotations

import pytest

from streaming.model.storage.log import EpochEntry, Log


def log_of(end: int, *epochs: EpochEntry) -> Log:
    log = Log()
    log.append_fetched(end, epochs)
    return log


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, (0, 0)), (1, (1, 10)), (2, (1, 10)), (3, (3, 20)), (4, (3, 20)), (5, (5, 30)), (6, (-1, -1)), (-1, (-1, -1))],
)
def test_end_offset_for_leader_epoch(epoch: int, expected: EpochEntry) -> None:
    """G24."""
    assert expected == log_of(30, (1, 0), (3, 10), (5, 20)).end_offset_for(epoch)


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
