"""What a log knows of its producers: the rules of appending, and that they follow from the log alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.model.constants import Error
from streaming.model.storage.batch import Batch, Marker
from streaming.model.storage.log import Log
from streaming.model.storage.producer_state import (
    AbortedTransaction,
    ProducerState,
    advance_sequence,
    duplicate_of,
    marker_refusal,
    refusal,
)

LAST = 2_147_483_647


def batch(sequence: int, size: int = 1, epoch: int = 0, **more: object) -> Batch:
    return Batch(0, size, producer_id=7, producer_epoch=epoch, base_sequence=sequence, **more)  # type: ignore[arg-type]


def log_of(*batches: Batch) -> Log:
    log = Log()
    for each in batches:
        log.append_batch(each)
    return log


@pytest.mark.parametrize(
    ("written", "next_batch", "expected"),
    [
        ([], batch(41), Error.NONE),
        ([batch(0, 3)], batch(3), Error.NONE),
        ([batch(0, 3)], batch(4), Error.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ([batch(0, 3)], batch(0), Error.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ([batch(LAST)], batch(0), Error.NONE),
        ([batch(LAST - 1, 3)], batch(1), Error.NONE),
        ([batch(0, epoch=4)], batch(1, epoch=3), Error.INVALID_PRODUCER_EPOCH),
        ([batch(0, epoch=4)], batch(1, epoch=5), Error.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ([batch(0, epoch=4)], batch(0, epoch=5), Error.NONE),
        ([batch(0, is_transactional=True)], batch(1), Error.INVALID_TXN_STATE),
        ([batch(0), batch(-1, epoch=1, marker=Marker.ABORT)], batch(1, epoch=0), Error.INVALID_PRODUCER_EPOCH),
        ([batch(0), batch(-1, epoch=1, marker=Marker.ABORT)], batch(0, epoch=1), Error.NONE),
        ([batch(0), batch(-1, marker=Marker.COMMIT)], batch(1), Error.NONE),
    ],
)
def test_a_batch_follows_its_predecessor(written: list[Batch], next_batch: Batch, expected: Error) -> None:
    assert refusal(log_of(*written).producers.entries.get(7), next_batch) is expected


def test_the_last_five_batches_are_recognised() -> None:
    entry = log_of(*(batch(2 * number, 2) for number in range(7))).producers.entries[7]
    found = [duplicate_of(entry, batch(2 * number, 2)) for number in range(7)]
    assert [it and it.base_offset for it in found] == [None, None, 4, 6, 8, 10, 12]
    assert duplicate_of(entry, batch(12, 1)) is None, "the first sequence agrees, the last one does not"
    assert duplicate_of(entry, batch(12, 2, epoch=1)) is None


def test_markers_of_older_epochs_and_older_coordinators_are_refused() -> None:
    marker = batch(-1, epoch=3, marker=Marker.COMMIT, coordinator_epoch=8)
    entry = log_of(batch(0, epoch=3, is_transactional=True), marker).producers.entries[7]
    assert marker_refusal(None, 0, 0) is Error.NONE
    assert marker_refusal(entry, 3, 8) is Error.NONE
    assert marker_refusal(entry, 2, 8) is Error.INVALID_PRODUCER_EPOCH
    assert marker_refusal(entry, 3, 7) is Error.TRANSACTION_COORDINATOR_FENCED


def test_a_producer_that_was_silent_for_a_day_is_forgotten_unless_its_transaction_is_open() -> None:
    silent = log_of(batch(0, timestamp_ms=1_000)).producers
    assert silent.entry_of(7, 1_999, 1_000) is not None
    assert silent.entry_of(7, 2_000, 1_000) is None
    busy = log_of(batch(0, timestamp_ms=1_000, is_transactional=True)).producers
    assert busy.entry_of(7, 9_000, 1_000) is not None


def test_a_transaction_is_unstable_until_its_marker_is_committed() -> None:
    log = log_of(batch(0, 10), batch(10, 5, is_transactional=True))
    assert [log.producers.last_stable_offset(mark) for mark in (4, 10, 15)] == [4, 10, 10]
    log.append_batch(batch(-1, marker=Marker.ABORT))
    assert [log.producers.last_stable_offset(mark) for mark in (15, 16)] == [10, 16]
    aborted = (AbortedTransaction(7, 10, 15),)
    ranges = [(0, 10), (0, 11), (12, 14), (15, 16), (16, 20)]
    assert [log.producers.aborted_between(*each) for each in ranges] == [(), aborted, aborted, aborted, ()]


ACTIONS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["write", "write in a transaction", "commit", "abort", "truncate"])),
    max_size=40,
)


@given(ACTIONS)
def test_the_state_is_a_function_of_the_log(actions: list[tuple[int, str]]) -> None:
    """Kept from batch to batch, or computed from what a truncation left: it is the same, at any high watermark."""
    log, sequences = Log(), dict.fromkeys((1, 2, 3), 0)
    for producer, action in actions:
        if action == "truncate":
            log.truncate(log.batches[len(log.batches) // 2].base_offset if log.batches else 0)
        elif action.startswith("write"):
            transactional = "transaction" in action
            log.append_batch(Batch(0, 2, producer, 0, sequences[producer], is_transactional=transactional))
            sequences[producer] = advance_sequence(sequences[producer], 2)
        else:
            log.append_batch(Batch(0, 1, producer, 0, is_transactional=True, marker=Marker[action.upper()]))
    again = ProducerState()
    again.rebuild(log.batches)
    assert again.entries == log.producers.entries
    assert again.aborted == log.producers.aborted
    for mark in range(log.end, -1, -1):
        fresh = ProducerState()
        fresh.rebuild(log.batches)
        assert fresh.last_stable_offset(mark) <= mark
    assert again.last_stable_offset(log.end) == log.producers.last_stable_offset(log.end)
