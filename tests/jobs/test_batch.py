from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from streaming.contracts.codec import encode
from streaming.contracts.observations import Channel, ReplicaOffsetsObserved
from streaming.contracts.tables import REPLICA_OFFSETS
from streaming.jobs.batch import ReplicationBatch
from streaming.jobs.newest import NewestBatch
from tests.changes.conftest import Story
from tests.end_to_end.stories import essence, expected_changes, long_story

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from streaming.contracts.observations import Observation


BUS = pa.schema([("source", pa.string()), ("position", pa.int64()), ("payload", pa.binary()), ("damage", pa.string())])


def published(observations: Iterable[Observation], start: int = 0) -> pa.Table:
    """What Spark hands to a batch, one observation a position."""
    return pa.Table.from_pylist([
        {"source": observed.source, "position": position, "payload": encode(observed), "damage": None}
        for position, observed in enumerate(observations, start=start)
    ], schema=BUS)  # fmt: skip


def rows(directory: Path, name: str) -> list[dict[str, Any]]:
    query = QueryBuilder().register("t", DeltaTable(str(directory / name)))
    found: list[dict[str, Any]] = pa.table(query.execute("select * from t")).to_pylist()
    return found


def test_a_batch_that_comes_again_in_any_cut_changes_nothing(tmp_path: Path) -> None:
    story = long_story(seed=5, steps=60)
    batch = ReplicationBatch(tmp_path)
    batch.apply(published(story[:30]))
    batch.apply(published(story[:40]))
    version = batch.shared.version
    batch.apply(published(story[10:35], start=10))
    assert batch.shared.version == version

    again = ReplicationBatch(tmp_path)
    again.apply(published(story))

    assert essence(rows(tmp_path, "partition_changes")) == expected_changes(story)


def test_what_is_refused_goes_to_quarantine_once_and_the_rest_goes_on(tmp_path: Path) -> None:
    story = Story()
    story.snapshot()
    torn = {"source": "metadata_log:a", "position": 98, "payload": b"\x00x", "damage": "checksum"}
    odd = {"source": "metadata_log:a", "position": 99, "payload": b'{"v":1,"kind":"dream"}', "damage": None}
    mixed = pa.Table.from_pylist([*published(story.seen).to_pylist(), torn, odd], schema=BUS)

    first = ReplicationBatch(tmp_path).apply(mixed)
    ReplicationBatch(tmp_path).apply(mixed)

    assert (first.observations, first.refused) == (len(story.seen), 2)
    assert [(row["position"], row["reason"], row["raw"]) for row in rows(tmp_path, "quarantine")] == [
        (98, "checksum", b"\x00x"),
        (99, "unknown kind 'dream'", b'{"v":1,"kind":"dream"}'),
    ]


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a_table_of_samples_keeps_the_newest_of_each_key(tmp_path: Path, order: tuple[int, int]) -> None:
    def sample(at: int) -> ReplicaOffsetsObserved:
        envelope = {**Story("admin:a").envelope(), "collected_at": at}
        return ReplicaOffsetsObserved(
            **envelope, topic_id="t", topic="orders", partition=0, broker=1, high_watermark=at
        )

    batch = NewestBatch(tmp_path, REPLICA_OFFSETS, Channel.OFFSETS)
    batch.apply(published([sample(order[0])]))
    NewestBatch(tmp_path, REPLICA_OFFSETS, Channel.OFFSETS).apply(published([sample(order[1])], start=1))

    assert [row["high_watermark"] for row in rows(tmp_path, "replica_offsets")] == [2]
