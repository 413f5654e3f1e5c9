"""Samples on executors: an answer without samples is no row of a table, and stops nothing. No Spark."""

from __future__ import annotations

from streaming.contracts.observations import Channel
from streaming.jobs.distributed.newest import decode_samples
from streaming.jobs.driver.newest import TABLE_OF
from tests.jobs.driver import test_group_samples, test_transaction_samples
from tests.jobs.driver.test_batch import published

KINDS = tuple(kind for kind in TABLE_OF if kind.channel is Channel.OFFSETS)


def test_an_answer_without_samples_is_no_row() -> None:
    answers = [
        *test_transaction_samples.answered(1, 10, 7),
        *test_transaction_samples.answered(2, 11),
        *test_group_samples.answered(1, 12, {}),
        *test_group_samples.answered(2, 13, {"g": {0: 5}}),
    ]
    batches = decode_samples(KINDS, Channel.OFFSETS)(iter(published(answers).to_batches()))
    kinds = [kind for batch in batches for kind in batch.column("kind").to_pylist() if kind is not None]
    assert sorted(kinds) == ["group", "group_offsets", "transaction"]
