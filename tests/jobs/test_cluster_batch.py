"""The cluster form applies batches as the driver form does; on one machine here, see end_to_end for a real cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from streaming.contracts.codec import encode
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Channel
from streaming.contracts.samples import GroupOffsetsObserved, QuorumMemberObserved, ReplicaOffsetsObserved
from streaming.contracts.tables import QUARANTINE
from streaming.errors import TableRefused
from streaming.jobs.batch import ReplicationBatch
from streaming.jobs.cluster_batch import ClusterReplicationBatch, quarantine, schema_of
from streaming.jobs.cluster_newest import ClusterNewestBatch
from streaming.jobs.cluster_projections import ClusterProjections
from streaming.jobs.cluster_rows import READ, read_rows
from streaming.jobs.cluster_tables import ClusterTable
from streaming.jobs.newest import NewestBatch
from streaming.schemas import bus_schema
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.changes.conftest import Story
from tests.end_to_end.stories import long_story

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming.contracts.observations import Observation

pytestmark = [pytest.mark.spark, pytest.mark.slow]
BUS = pa.schema([("source", pa.string()), ("position", pa.int64()), ("payload", pa.binary()), ("damage", pa.string())])
WHEN = ("quarantined_at", "as_of_version")
DERIVED = ("replication_events", "partition_state", "broker_state", "cluster_state")


def published(observations: Iterable[Observation], start: int = 0) -> list[dict[str, Any]]:
    return [
        {"source": observed.source, "position": position, "payload": encode(observed), "damage": None}
        for position, observed in enumerate(observations, start=start)
    ]


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(row.values()) for row in rows], bus_schema())


def rows(directory: Path, name: str) -> list[dict[str, Any]]:
    query = QueryBuilder().register("t", DeltaTable(str(directory / name)))
    found = pa.table(query.execute("select * from t")).to_pylist()
    return sorted(({name: row[name] for name in row if name not in WHEN} for row in found), key=repr)


def form_of(directory: Path, form: str) -> None:
    """Write the derived tables in the form that wrote the truth."""
    if form == "c":
        assert ClusterProjections(directory).project()
        assert not ClusterProjections(directory).project()
    else:
        batch = ReplicationBatch(directory)
        batch.projections.project(batch.shared)


def test_both_forms_write_the_same_changes_and_each_goes_on_after_the_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    story = published(long_story(seed=11, steps=80))
    story.insert(40, {"source": "metadata_log:a", "position": 10_000, "payload": b"\x00", "damage": "checksum"})
    for position, row in enumerate(story):
        row["position"] = position
    cuts = [(0, 45), (45, 70), (60, len(story))]
    driver, mixed = tmp_path / "driver", tmp_path / "mixed"
    alone = ReplicationBatch(driver)
    for lower, upper in cuts:
        alone.apply(pa.Table.from_pylist(story[lower:upper], schema=BUS))

    for form, (lower, upper) in zip("cdc", cuts, strict=True):
        if form == "c":
            ClusterReplicationBatch(mixed, buckets=3).apply_frame(frame(spark, story[lower:upper]))
        else:
            ReplicationBatch(mixed).apply(pa.Table.from_pylist(story[lower:upper], schema=BUS))

        form_of(mixed, form)
    alone.projections.project(alone.shared)

    assert rows(mixed, "partition_changes") == rows(driver, "partition_changes")
    assert ClusterReplicationBatch(mixed, buckets=3).sources()[0] == alone.sources()[0]
    for table in DERIVED:
        assert rows(mixed, table) == rows(driver, table), table
    assert rows(mixed, "quarantine") == rows(driver, "quarantine")


def test_a_writer_that_another_one_followed_stops_and_leaves_the_table_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    story = published(long_story(seed=12, steps=20))
    older = ClusterReplicationBatch(tmp_path, buckets=2)
    older.apply_frame(frame(spark, story[:10]))
    newer = ClusterReplicationBatch(tmp_path, buckets=2)
    newer.apply_frame(frame(spark, story[10:20]))

    with pytest.raises(TableRefused, match="another job writes"):
        older.apply_frame(frame(spark, story[10:20]))
    newer.apply_frame(frame(spark, story[20:]))

    again = tmp_path / "again"
    ReplicationBatch(again).apply(pa.Table.from_pylist(story, schema=BUS))
    told = [
        [row for row in rows(path, "partition_changes") if row["subject"] != "source"] for path in (tmp_path, again)
    ]
    assert told[0] == told[1]


def test_a_refusal_is_written_once_though_the_form_changes_before_its_batch_is_applied(
    spark: SparkSession, tmp_path: Path
) -> None:
    story = [{"source": "metadata_log:a", "position": 7, "payload": b"{", "damage": None}]
    read = frame(spark, story).mapInArrow(read_rows({}), schema_of(READ))

    quarantine(read, Channel.REPLICATION, ClusterTable(tmp_path, QUARANTINE))
    ReplicationBatch(tmp_path).apply(pa.Table.from_pylist(story, schema=BUS))

    assert [row["position"] for row in rows(tmp_path, "quarantine")] == [7]


@pytest.mark.parametrize("forms", ["cd", "dc"])
def test_samples_of_both_forms_are_the_same_and_what_is_left_out_is_forgotten(
    spark: SparkSession, tmp_path: Path, forms: str
) -> None:
    envelope = Story("admin:a").envelope()
    identity: dict[str, Any] = {"topic_id": "t", "topic": "orders"}

    def samples(at: int, partitions: int) -> list[Observation]:
        told = {**envelope, "collected_at": at * 1_000_000}
        return [
            *(
                ReplicaOffsetsObserved(**told, **identity, partition=number, broker=broker, high_watermark=at)
                for number in range(partitions)
                for broker in (1, 2)
            ),
            GroupOffsetsObserved(**told, **identity, partition=0, group="g", committed_offset=4, high_watermark=at + 9),
            QuorumMemberObserved(**told, node=100, is_voter=True, controller=100, controller_epoch=3),
        ]

    odd = {"source": "admin:a", "position": 900, "payload": b"{", "damage": None}
    story = [published(samples(100, 4)), [*published(samples(170, 3), 500), odd]]
    alone, mixed = tmp_path / "alone", tmp_path / "mixed"
    for batch in story:
        NewestBatch(alone, Channel.OFFSETS).apply(pa.Table.from_pylist(batch, schema=BUS))
    for form, batch in zip(forms, story, strict=True):
        if form == "c":
            for _ in range(2):  # comes again
                ClusterNewestBatch(mixed, Channel.OFFSETS, buckets=2).apply_frame(frame(spark, batch))
        else:
            NewestBatch(mixed, Channel.OFFSETS).apply(pa.Table.from_pylist(batch, schema=BUS))

    for table in ("replica_offsets", "group_offsets", "transactions", "quorum_members", "quarantine"):
        assert rows(mixed, table) == rows(alone, table), table


def test_what_brokers_count_is_compared_alike_by_both_forms(spark: SparkSession, tmp_path: Path) -> None:
    source = SimulatedSource(
        load_scenario("broker_loss"), seed=3, cluster_id=ClusterId("c"), cluster="c", name="metadata_log:c",
        epoch=Micros(1_700_000_000_000_000),
    )  # fmt: skip
    alone = NewestBatch(tmp_path / "driver", Channel.METRICS)
    executors = ClusterNewestBatch(tmp_path / "cluster", Channel.METRICS, buckets=2)
    for cut in range(1, 4):
        told = source.poll(Micros(1_700_000_000_000_000 + cut * 25_000_000))
        of = {
            channel: published((it for it in told if it.channel is channel), start=cut * 100_000)
            for channel in (Channel.REPLICATION, Channel.METRICS)
        }
        for form in ("driver", "cluster"):
            ReplicationBatch(tmp_path / form).apply(pa.Table.from_pylist(of[Channel.REPLICATION], schema=BUS))
        alone.apply(pa.Table.from_pylist(of[Channel.METRICS], schema=BUS))
        executors.apply_frame(frame(spark, of[Channel.METRICS]))

    found = rows(tmp_path / "cluster", "isr_reconciliation")
    assert found == rows(tmp_path / "driver", "isr_reconciliation")
    assert sum(row["counted"] for row in found) > 0
