"""Transactions that are over leave the table with the next answer of who reported them, and with nobody else's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.observations import Channel, Observation, SourceKind
from streaming.contracts.sample_blocks import TransactionsReported
from streaming.contracts.samples import TransactionObserved
from streaming.jobs.driver.samples import NewestBatch
from tests.jobs.driver.test_batch import published, rows

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000


def answered(broker: int, second: int, *producers: int, hanging: tuple[int, ...] = ()) -> list[Observation]:
    """What a broker reports at a moment: the producers with an open transaction, and those with one that hangs."""
    envelope: dict[str, Any] = {
        "cluster_id": "c",
        "cluster": "prod",
        "source": "samples:a",
        "authority": SourceKind.NONE,
        **dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), Micros(second * SECOND)),
    }
    return [
        *(
            TransactionObserved(
                **envelope,
                producer_id=producer,
                producer_epoch=0,
                transaction_state="Ongoing",
                is_hanging=producer in hanging,
                coordinator=None if producer in hanging else BrokerId(broker),
                reporter=BrokerId(broker),
            )
            for producer in (*producers, *hanging)
        ),
        TransactionsReported(**envelope, broker=BrokerId(broker)),
    ]


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_what_is_over_is_gone_and_what_a_silent_broker_had_stays(tmp_path: Path, is_one_batch: bool) -> None:  # noqa: FBT001 - a parameter of the test
    batch = NewestBatch(tmp_path, Channel.OFFSETS)
    answers = [
        answered(1, 10, 7, 8, hanging=(9,)),
        answered(2, 11, 5),
        answered(1, 40, 8),
        answered(3, 41),
    ]
    if is_one_batch:
        batch.apply(published([each for answer in answers for each in answer]))
    else:
        everything: list[Observation] = []
        for answer in answers:
            everything += answer
            batch.apply(published(everything))

    assert {row["producer_id"] for row in rows(tmp_path, "transactions")} == {5, 8}


def test_when_the_last_one_is_over_the_table_is_empty_also_after_a_restart(tmp_path: Path) -> None:
    NewestBatch(tmp_path, Channel.OFFSETS).apply(published(answered(1, 10, 7, hanging=(9,))))
    assert len(rows(tmp_path, "transactions")) == 2
    NewestBatch(tmp_path, Channel.OFFSETS).apply(published([*answered(1, 10, 7, hanging=(9,)), *answered(1, 40)]))
    assert rows(tmp_path, "transactions") == []


def test_what_moved_to_another_coordinator_stays(tmp_path: Path) -> None:
    batch = NewestBatch(tmp_path, Channel.OFFSETS)
    batch.apply(published([*answered(1, 10, 7), *answered(2, 40, 7), *answered(1, 41)]))
    assert [(row["producer_id"], row["coordinator"]) for row in rows(tmp_path, "transactions")] == [(7, 2)]


def test_of_a_simulation_nobody_says_that_a_transaction_is_over(tmp_path: Path) -> None:
    single, _ = answered(1, 10, 7)
    simulated: Any = replace(single, reporter=None)  # type: ignore[call-arg]
    NewestBatch(tmp_path, Channel.OFFSETS).apply(published([simulated, *answered(1, 20)]))
    assert len(rows(tmp_path, "transactions")) == 1


def test_what_a_broker_had_that_does_not_come_back_is_forgotten_also_where_nobody_has_any(tmp_path: Path) -> None:
    batch = NewestBatch(tmp_path, Channel.OFFSETS)
    batch.apply(published([*answered(1, 10, 7), *answered(2, 70)]))
    assert [row["producer_id"] for row in rows(tmp_path, "transactions")] == [7], "a minute"
    batch.apply(published([*answered(1, 10, 7), *answered(2, 70), *answered(2, 71)]))
    assert rows(tmp_path, "transactions") == []
