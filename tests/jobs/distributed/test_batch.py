"""The distributed mode applies batches as the driver mode does; see end_to_end for a real Spark cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from streaming.changes.slow_brokers import LEAST_HISTORY
from streaming.contracts.codec import encode
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import DISKLESS, Channel, ConfigObserved, PartitionObserved, SourceKind
from streaming.contracts.sample_blocks import BrokerSpeedsObserved
from streaming.contracts.samples import GroupOffsetsObserved, QuorumMemberObserved, ReplicaOffsetsObserved
from streaming.contracts.settings import BrokerSettingsObserved, TopicSettingsObserved
from streaming.contracts.tables import QUARANTINE
from streaming.delta.progress import ProgressTable, SourceLag
from streaming.errors import TableRefused
from streaming.jobs.distributed.batch import DistributedReplicationBatch, schema_of
from streaming.jobs.distributed.newest import DistributedNewestBatch
from streaming.jobs.distributed.projections import DistributedProjections
from streaming.jobs.distributed.quarantine import append_refused, refused_counts
from streaming.jobs.distributed.rows import READ, read_rows
from streaming.jobs.distributed.tables import DistributedTable
from streaming.jobs.driver.batch import ReplicationBatch
from streaming.jobs.driver.newest import NewestBatch
from streaming.jobs.schemas import bus_schema
from streaming.jobs.streams.bus_rows import SCHEMA
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.changes.conftest import Story
from tests.end_to_end.stories import long_story
from tests.jobs.driver.test_group_samples import answered
from tests.jobs.driver.test_transaction_samples import answered as transactions_answered

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming.contracts.observations import Observation

pytestmark = [pytest.mark.spark, pytest.mark.slow]
WHEN = ("quarantined_at", "as_of_version", "version", "ordinal", "committed_at")
DERIVED = ("replication_events", "partition_state", "broker_state", "cluster_state")


def published(observations: Iterable[Observation], start: int = 0) -> list[dict[str, Any]]:
    return [
        {"source": observed.source, "position": position, "payload": encode(observed), "damage": None}
        for position, observed in enumerate(observations, start=start)
    ]


def diskless_for_a_while(told: list[Observation]) -> Iterable[Observation]:
    """Configure the one topic of a story as diskless, and later as replicated again."""
    (config,) = (it for it in told if isinstance(it, ConfigObserved))
    for place, value in ((60, None), (20, "true")):
        at = next(it for it in told[place:] if isinstance(it, PartitionObserved))
        times = {name: getattr(at, name) for name in ("occurred_not_before", "occurred_not_after", "collected_at")}
        flag = replace(config, key=DISKLESS, value=value, metadata_offset=at.metadata_offset, **times)
        told.insert(told.index(at), flag)
    return (replace(it, sequence=number) for number, it in enumerate(told, start=1))


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame(rows, bus_schema())


def rows(directory: Path, name: str) -> list[dict[str, Any]]:
    query = QueryBuilder().register("t", DeltaTable(str(directory / name)))
    found = pa.table(query.execute("select * from t")).to_pylist()
    return sorted(({name: row[name] for name in row if name not in WHEN} for row in found), key=repr)


def project(directory: Path, mode: str) -> None:
    """Write the derived tables in the mode that wrote the change log."""
    if mode == "x":
        assert DistributedProjections(directory).project()
        assert not DistributedProjections(directory).project()
    else:
        batch = ReplicationBatch(directory)
        batch.projections.project(batch.shared)


def test_both_modes_write_the_same_changes_and_each_goes_on_after_the_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    story = published(diskless_for_a_while(long_story(seed=11, steps=80)))
    story.insert(40, {"source": "metadata_log:a", "position": 10_000, "payload": b"\x00", "damage": "checksum"})
    for position, row in enumerate(story):
        row["position"] = position
    cuts = [(0, 45), (45, 70), (60, len(story))]
    driver, mixed = tmp_path / "driver", tmp_path / "mixed"
    alone = ReplicationBatch(driver)
    for lower, upper in cuts:
        alone.apply(pa.Table.from_pylist(story[lower:upper], schema=SCHEMA))

    for mode, (lower, upper) in zip("xdx", cuts, strict=True):
        if mode == "x":
            DistributedReplicationBatch(mixed, buckets=3).apply_frame(frame(spark, story[lower:upper]))
        else:
            ReplicationBatch(mixed).apply(pa.Table.from_pylist(story[lower:upper], schema=SCHEMA))

        project(mixed, mode)
    alone.projections.project(alone.shared)

    assert rows(mixed, "partition_changes") == rows(driver, "partition_changes")
    assert {row["after"]["is_diskless"] for row in rows(mixed, "partition_changes") if row["after"]} == {True, False}
    assert DistributedReplicationBatch(mixed, buckets=3).sources()[0] == alone.sources()[0]
    for table in DERIVED:
        assert rows(mixed, table) == rows(driver, table), table
    assert rows(mixed, "quarantine") == rows(driver, "quarantine")


def test_a_log_with_two_clusters_has_a_state_for_each_and_is_read_once_in_both_modes(
    spark: SparkSession, tmp_path: Path
) -> None:
    first, second = Story("poll:a", SourceKind.POLL), Story("poll:a", SourceKind.POLL)
    for story, repeats in ((first, 2), (second, 3)):
        story.snapshot()
        for _ in range(repeats):
            story.later().partition()
    first.later().partition(isr=(1, 2))
    others = [replace(item, cluster_id=ClusterId("cluster-2")) for item in second.seen]
    log = published([*others, *first.seen])
    cut = len(others) + 5
    driver = ReplicationBatch(tmp_path / "driver")
    distributed = DistributedReplicationBatch(tmp_path / "distributed", buckets=3)
    for rows_of_batch in (log[:cut], log[cut:]):
        driver.apply(pa.Table.from_pylist(rows_of_batch, schema=SCHEMA))
        distributed.apply_frame(frame(spark, rows_of_batch))
    refused = [{**log[0], "position": len(log) + number, "payload": b"{"} for number in range(3)]
    driver.apply(pa.Table.from_pylist(refused, schema=SCHEMA))
    distributed.apply_frame(frame(spark, refused))
    again = DistributedReplicationBatch(tmp_path / "distributed", buckets=3)

    by_cluster = {state.cluster_id: state for state in again.sources()[0]}
    uncounted = [
        sorted(state._replace(quarantined=0) for state in batch.sources()[0]) for batch in (distributed, again, driver)
    ]
    assert uncounted[0] == uncounted[1] == uncounted[2]
    assert {state.quarantined for state in by_cluster.values()} == {len(refused)}
    assert {cluster_id: state.duplicates for cluster_id, state in by_cluster.items()} == {
        "cluster-1": 2,
        "cluster-2": 3,
    }
    assert again.position("poll:a") == refused[-1]["position"], "also of a batch in which everything was refused"


def test_both_modes_drop_what_was_deleted_on_the_next_day_but_one_and_keep_its_totals(
    spark: SparkSession, tmp_path: Path
) -> None:
    story = Story()
    story.snapshot([{}, {}])
    story.config("3")
    lag = {"isr": (1, 2), "partition_epoch": 1, "cause": Cause.LAG, "evidence": Evidence.PROVEN}
    story.later(5).partition(0, **lag)
    story.later(50).removed()
    cut = len(story.seen)
    for _ in range(2):
        story.later(86_400).heartbeat()
    log = published(story.seen)
    alone, distributed = ReplicationBatch(tmp_path / "driver"), DistributedReplicationBatch(tmp_path / "x", buckets=2)
    for batch in (log[:cut], log[cut:]):
        alone.apply(pa.Table.from_pylist(batch, schema=SCHEMA))
        distributed.apply_frame(frame(spark, batch))
    alone.projections.project(alone.shared)
    project(tmp_path / "x", "x")

    assert rows(tmp_path / "x", "partition_state") == rows(tmp_path / "driver", "partition_state") == []
    (ours,), (theirs,) = rows(tmp_path / "x", "cluster_state"), rows(tmp_path / "driver", "cluster_state")
    assert (theirs["expired_isr_shrinks"], theirs["expired_under_replicated_seconds"]) == (1, 50.0)
    names = [name for name in theirs if name.startswith(("expired_", "tombstones_", "isr_", "under_"))]
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}


def test_a_writer_that_another_one_followed_stops_and_leaves_the_table_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    story = published(long_story(seed=12, steps=20))
    older = DistributedReplicationBatch(tmp_path, buckets=2)
    older.apply_frame(frame(spark, story[:10]))
    newer = DistributedReplicationBatch(tmp_path, buckets=2)
    newer.apply_frame(frame(spark, story[10:20]))

    with pytest.raises(TableRefused, match="another job writes"):
        older.apply_frame(frame(spark, story[10:20]))
    newer.apply_frame(frame(spark, story[20:]))

    again = tmp_path / "again"
    ReplicationBatch(again).apply(pa.Table.from_pylist(story, schema=SCHEMA))
    told = [
        [row for row in rows(path, "partition_changes") if row["subject"] != "source"] for path in (tmp_path, again)
    ]
    assert told[0] == told[1]


def test_a_refusal_is_written_once_though_the_mode_changes_before_its_batch_is_applied(
    spark: SparkSession, tmp_path: Path
) -> None:
    story = [{"source": "metadata_log:a", "position": 7, "payload": b"{", "damage": None}]
    read = frame(spark, story).mapInArrow(read_rows({}), schema_of(READ))

    append_refused(read, Channel.REPLICATION, DistributedTable(tmp_path, QUARANTINE))
    ReplicationBatch(tmp_path).apply(pa.Table.from_pylist(story, schema=SCHEMA))

    assert [row["position"] for row in rows(tmp_path, "quarantine")] == [7]


def test_both_modes_keep_the_same_refused_records_and_count_the_same_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    def refused(position: int) -> dict[str, Any]:
        payload = (b"{", b'{"v":1,"kind":"dream"}', b'{"v":1,"kind":"heartbeat"}')[position % 3]
        return {"source": f"s{position % 2}", "position": position, "payload": payload, "damage": None}

    log = [refused(position) for position in range(200)]
    table = DistributedTable(tmp_path / "distributed", QUARANTINE)
    for begin, end in ((0, 90), (0, 90), (90, 200)):
        read = frame(spark, log[begin:end]).mapInArrow(read_rows({}), schema_of(READ))
        append_refused(read, Channel.REPLICATION, table)
        batch = ReplicationBatch(tmp_path / "driver")
        batch.apply(pa.Table.from_pylist(log[begin:end], schema=SCHEMA))

    told = [
        sorted(
            (row["source"], row["reason_kind"], row["position"], row["records"], row["raw"], row["raw_bytes"])
            for row in rows(tmp_path / mode, "quarantine")
        )
        for mode in ("distributed", "driver")
    ]
    assert told[0] == told[1]
    assert refused_counts(spark, Channel.REPLICATION, table) == {"s0": 100, "s1": 100}


@pytest.mark.parametrize("modes", ["xd", "dx"])
def test_samples_of_both_modes_are_the_same_and_what_is_left_out_is_forgotten(
    spark: SparkSession, tmp_path: Path, modes: str
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
            TopicSettingsObserved(
                **told, topic_id="o", topic="__consumer_offsets", broker=1, partition_count=50, replication_factor=1
            ),
            BrokerSettingsObserved(**told, broker=1, leader_throttled_rate=at),
        ]

    odd = {"source": "admin:a", "position": 900, "payload": b"{", "damage": None}
    story = [published(samples(100, 4)), [*published(samples(170, 3), 500), odd]]
    alone, mixed = tmp_path / "alone", tmp_path / "mixed"
    for batch in story:
        NewestBatch(alone, Channel.OFFSETS).apply(pa.Table.from_pylist(batch, schema=SCHEMA))
    for mode, batch in zip(modes, story, strict=True):
        if mode == "x":
            for _ in range(2):  # comes again
                DistributedNewestBatch(mixed, Channel.OFFSETS, buckets=2).apply_frame(frame(spark, batch))
        else:
            NewestBatch(mixed, Channel.OFFSETS).apply(pa.Table.from_pylist(batch, schema=SCHEMA))

    settings = ("topic_settings", "broker_settings", "broker_features")
    for table in ("replica_offsets", "group_offsets", "transactions", "quorum_members", "quarantine", *settings):
        assert rows(mixed, table) == rows(alone, table), table
    assert [row["weaknesses"] for row in rows(mixed, "topic_settings")] == [["one_replica"]]


@pytest.mark.parametrize("modes", ["xx", "dx"])
def test_brokers_are_compared_with_their_peers_in_both_modes(spark: SparkSession, tmp_path: Path, modes: str) -> None:
    times = ("occurred_not_before", "occurred_not_after", "collected_at")

    def speeds(begin: int, end: int) -> list[dict[str, Any]]:
        observed = [
            BrokerSpeedsObserved(
                **Story("admin:a").envelope() | dict.fromkeys(times, Micros(10_000_000 * number)),
                broker=1,
                broker_by_sample=(1, 2, 3, 4, 5),
                response_micros_by_sample=(900_000 if number > LEAST_HISTORY else 4_000, 4_000, 4_000, 4_000, 4_000),
                slowest_response_micros_by_sample=(900_000,) * 5,
                followed_leaders_by_sample=(4,) * 5,
                followed_leaders_behind_by_sample=(0,) * 5,
                followers_by_sample=(4,) * 5,
                followers_behind_by_sample=(0,) * 5,
                replicas_behind_by_sample=(0,) * 5,
                replicas_out_of_isr_by_sample=(0,) * 5,
                agents_of_brokers=(1, 2, 3) if number % 5 else (2,),
                append_micros_of_agents=(80_000 if number > LEAST_HISTORY else 2_000, 2_000, 2_000)
                if number % 5
                else (1,),
            )
            for number in range(begin, end)
        ]
        return published(observed, begin)

    alone, mixed = tmp_path / "alone", tmp_path / "mixed"
    for mode, batch in zip(modes, [speeds(0, LEAST_HISTORY), speeds(LEAST_HISTORY, 20)], strict=True):
        NewestBatch(alone, Channel.OFFSETS).apply(pa.Table.from_pylist(batch, schema=SCHEMA))
        if mode == "x":
            DistributedNewestBatch(mixed, Channel.OFFSETS, buckets=3).apply_frame(frame(spark, batch))
        else:
            NewestBatch(mixed, Channel.OFFSETS).apply(pa.Table.from_pylist(batch, schema=SCHEMA))
    assert rows(mixed, "broker_speed") == rows(alone, "broker_speed")
    assert [(row["broker"], row["is_slow"]) for row in rows(mixed, "broker_speed") if row["is_slow"]] == [(1, True)]


def test_transactions_that_are_over_are_gone_in_both_modes(spark: SparkSession, tmp_path: Path) -> None:
    answers = [
        [*transactions_answered(1, 1, 7, 8, hanging=(9,)), *transactions_answered(2, 2, 5)],
        [*transactions_answered(1, 11, 8), *transactions_answered(3, 12)],
        [*transactions_answered(1, 21), *transactions_answered(2, 22)],
    ]
    for number, observed in enumerate(answers):
        batch = published(observed, 10 * number)
        NewestBatch(tmp_path / "alone", Channel.OFFSETS).apply(pa.Table.from_pylist(batch, schema=SCHEMA))
        DistributedNewestBatch(tmp_path / "mixed", Channel.OFFSETS, buckets=2).apply_frame(frame(spark, batch))
        left = {row["producer_id"] for row in rows(tmp_path / "mixed", "transactions")}
        assert rows(tmp_path / "mixed", "transactions") == rows(tmp_path / "alone", "transactions")
        assert left == [{5, 7, 8, 9}, {5, 8}, set()][number]


def test_groups_that_are_gone_are_gone_in_both_modes(spark: SparkSession, tmp_path: Path) -> None:
    answers = [
        [*answered(1, 1, {"a": {0: 3, 1: 4}, "b": {0: 5}}), *answered(2, 2, {"c": {0: 6}}), *answered(3, 2, {"d": {}})],
        [*answered(1, 11, {"a": {1: 5}}), *answered(2, 12, {}), *answered(3, 12, {"b": {2: 1}, "d": {0: 1}})],
        [*answered(1, 21, {}), *answered(3, 22, {"d": {0: 2}})],
    ]
    for number, (mode, observed) in enumerate(zip("xdx", answers, strict=True)):
        batch = published(observed, 10 * number)
        NewestBatch(tmp_path / "alone", Channel.OFFSETS).apply(pa.Table.from_pylist(batch, schema=SCHEMA))
        if mode == "x":
            DistributedNewestBatch(tmp_path / "mixed", Channel.OFFSETS, buckets=2).apply_frame(frame(spark, batch))
        else:
            NewestBatch(tmp_path / "mixed", Channel.OFFSETS).apply(pa.Table.from_pylist(batch, schema=SCHEMA))
        for table in ("groups", "group_offsets"):
            assert rows(tmp_path / "mixed", table) == rows(tmp_path / "alone", table), table
        left = {row["group"] for row in rows(tmp_path / "mixed", "groups")}
        assert left == [{"a", "b", "c", "d"}, {"a", "b", "d"}, {"d"}][number]


def test_a_start_that_reads_refused_samples_again_does_not_count_them_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    sample = GroupOffsetsObserved(
        **Story("admin:a").envelope(), topic_id="t", topic="orders", partition=0, group="g", committed_offset=4,
        high_watermark=9,
    )  # fmt: skip
    log = [*published([sample]), *({"source": "admin:a", "position": 1 + at, "payload": b"{"} for at in range(3))]
    progress, counted = ProgressTable(tmp_path, Channel.OFFSETS), []
    for refused in (2, 3, 3):
        batch = DistributedNewestBatch(tmp_path, Channel.OFFSETS, buckets=2)
        batch.apply_frame(frame(spark, [{"damage": None, **row} for row in log[: 1 + refused]]))
        (source,), _ = batch.sources()
        progress.replace([(source, SourceLag())], None)
        counted.append(source.quarantined)

    assert counted == [2, 3, 3]


def test_what_brokers_count_is_compared_alike_by_both_modes(spark: SparkSession, tmp_path: Path) -> None:
    source = SimulatedSource(
        load_scenario("broker_loss"), seed=3, cluster_id=ClusterId("c"), cluster="c", name="metadata_log:c",
        epoch=Micros(1_700_000_000_000_000),
    )  # fmt: skip
    alone = NewestBatch(tmp_path / "driver", Channel.METRICS)
    executors = DistributedNewestBatch(tmp_path / "distributed", Channel.METRICS, buckets=2)
    for cut in range(1, 4):
        told = source.poll(Micros(1_700_000_000_000_000 + cut * 25_000_000))
        of = {
            channel: published((it for it in told if it.channel is channel), start=cut * 100_000)
            for channel in (Channel.REPLICATION, Channel.METRICS)
        }
        for mode in ("driver", "distributed"):
            ReplicationBatch(tmp_path / mode).apply(pa.Table.from_pylist(of[Channel.REPLICATION], schema=SCHEMA))
        alone.apply(pa.Table.from_pylist(of[Channel.METRICS], schema=SCHEMA))
        executors.apply_frame(frame(spark, of[Channel.METRICS]))

    found = rows(tmp_path / "distributed", "isr_reconciliation")
    assert found == rows(tmp_path / "driver", "isr_reconciliation")
    assert sum(row["counted"] for row in found) > 0
