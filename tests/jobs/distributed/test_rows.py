"""The steps of the distributed mode, without Spark: what travels between them gives the changes of one fold."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.changes.tombstones import DAY
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.maintenance import MaintenanceObserved
from streaming.contracts.observations import Channel, Heartbeat, SourceKind
from streaming.contracts.sample_tables import REPLICA_OFFSETS
from streaming.contracts.samples import ReplicaOffsetsObserved
from streaming.contracts.state import SourceState
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
)
from streaming.delta.change_reader import rows_between
from streaming.delta.change_rows import UNCOMMITTED, changes_to_arrow, in_commit
from streaming.delta.definitions import arrow_schema
from streaming.delta.events import events_of
from streaming.delta.layouts import create_or_upgrade
from streaming.delta.queries import select
from streaming.jobs.distributed.newest import decode_samples, newest_in_part
from streaming.jobs.distributed.rows import DROPS, ENVELOPES, NTH, ORDER, fold_rows, read_rows, route_rows
from streaming.jobs.distributed.summaries import ENTRY, ISR_REMOVAL, explode_events, summary_rows, tally_rows
from streaming.jobs.distributed.tombstones import days_of
from streaming.jobs.driver.batch import ReplicationBatch
from streaming.jobs.driver.newest import NewestBatch
from tests.changes.conftest import SECOND, Story
from tests.end_to_end.stories import long_story
from tests.jobs.driver.test_batch import published

if TYPE_CHECKING:
    from pathlib import Path

BUCKETS = 3
NAMES = UNCOMMITTED.names


def bucket_of(topic: str | None) -> int:
    return 1 + zlib.crc32(topic.encode()) % BUCKETS if topic else 0


def step(known: pa.Table, rows: pa.Table) -> pa.Table:
    """Do what Spark does between the steps, for one cluster."""
    read = pa.Table.from_batches(list(read_rows({})(iter(rows.to_batches()))))
    assert read["reason"].null_count == read.num_rows
    buckets = pa.array([bucket_of(topic) for topic in read["topic"].to_pylist()], pa.int32())
    seen = read.append_column("bucket", buckets).select(list(ENVELOPES))
    few = [row["subject"] != "partition" for row in known.to_pylist()]
    routed = route_rows(BUCKETS)((), known.filter(pa.array(few, pa.bool_())), seen)
    payloads = read.select(["source", "position", "payload"])
    told = routed.join(payloads, ["source", "position"], join_type="left outer")
    found: list[pa.Table] = []
    for bucket in sorted(set(routed["bucket"].to_pylist())):
        of_bucket = [row["subject"] != "partition" or bucket_of(row["topic"]) == bucket for row in known.to_pylist()]
        mine = pa.array([each == bucket for each in told["bucket"].to_pylist()])
        key = (pa.scalar("cluster-1"), pa.scalar(bucket))
        found.append(fold_rows(key, known.filter(pa.array(of_bucket, pa.bool_())), told.filter(mine)))
    return pa.concat_tables(found)


def nothing() -> pa.Table:
    return arrow_schema(PARTITION_CHANGES).empty_table()


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted((row for row in rows.select(NAMES).to_pylist() if row["subject"] != "source"), key=repr)


@pytest.mark.parametrize("size", [7, 60, 1000])
def test_batches_of_any_size_give_the_changes_of_one_fold(size: int) -> None:
    story = long_story(seed=21, steps=80)
    known = nothing()
    for start in range(0, len(story), size):
        folded = step(known, published(story[start : start + size], start=start))
        fresh = folded.filter(pa.array([drops is None for drops in folded[DROPS].to_pylist()]))
        committed = in_commit(fresh.sort_by(ORDER).select(NAMES).cast(UNCOMMITTED), version=start + 1, committed_at=0)
        known = pa.concat_tables([known, committed])

    assert in_order(known) == in_order(changes_to_arrow(fold(ReplicationState(), story).changes))


def test_a_lease_lapses_at_its_place_in_the_batch_before_what_came_after_it() -> None:
    story = Story()
    story.snapshot([{}, {}])
    at = story.later().envelope() | {"source": "maintenance:ops", "authority": SourceKind.NONE, "sequence": 1}
    story.sequence -= 1
    lease = MaintenanceObserved(**at, broker=3, lease="l", lease_until=story.now + 60 * SECOND, why="new disk")
    observations = [*story.seen, lease]
    story.seen = []
    story.later(70).heartbeat()
    story.later(20).broker(3, fenced=True)
    folded = step(nothing(), published([*observations, *story.seen]))

    rows = folded.sort_by([(ORDER, "ascending"), (NTH, "ascending")]).to_pylist()

    events = [event["event"] for row in rows for event in row["events"] or () if row["broker"] == 3]
    assert events == ["maintenance_began", "maintenance_lapsed", "fenced"]
    assert [row["broker_after"]["is_fenced"] for row in rows if row["broker"] == 3][-1]


def test_what_a_bucket_drops_is_counted_beside_its_changes() -> None:
    story = Story()
    story.snapshot()
    story.later().partition(isr=(1, 2), partition_epoch=1)
    story.partition(isr=(1, 2), partition_epoch=1)

    folded = step(nothing(), published(story.seen))

    assert [row["source"] for row in folded.to_pylist() if row[DROPS] == 1] == ["metadata_log:a"]


def test_a_heartbeat_alone_moves_the_source() -> None:
    story = Story()
    story.heartbeat()
    assert isinstance(story.seen[0], Heartbeat)

    folded = step(nothing(), published(story.seen))

    assert [row["subject"] for row in folded.to_pylist()] == [Subject.CLUSTER, Subject.SOURCE]


def test_pieces_of_the_state_counted_apart_add_up_to_the_summaries_of_one_process(tmp_path: Path) -> None:
    story = long_story(seed=22, steps=120)
    batch = ReplicationBatch(tmp_path)
    batch.apply(published(story))
    batch.projections.project(batch.shared)
    version = batch.shared.version
    partitions = select(create_or_upgrade(tmp_path, PARTITION_STATE_TABLE), PARTITION_STATE_TABLE)
    pieces = list(tally_rows(iter(partitions.to_batches(max_chunksize=5))))
    added = (
        pa.Table.from_batches(pieces).group_by(["cluster_id", "entry", "broker", "name"]).aggregate([("value", "sum")])
    )
    changes = rows_between(tmp_path / PARTITION_CHANGES.name, -1, version)
    departures = Counter((broker, row["cause"]) for row in changes.to_pylist() for broker in row["left_isr"] or ())
    told = [
        {"cluster_id": "cluster-1", "entry": ISR_REMOVAL, "broker": broker, "name": cause, "value": count}
        for (broker, cause), count in departures.items()
    ]
    columns = ["cluster_id", "entry", "broker", "name", "value_sum"]
    numbers = added.select(columns).rename_columns(ENTRY.names).cast(ENTRY)
    numbers = pa.concat_tables([numbers, pa.Table.from_pylist(told, schema=ENTRY)])
    known = changes.filter(pc.not_equal(changes["subject"], "partition"))

    for table in (BROKER_STATE_TABLE, CLUSTER_STATE_TABLE):
        found = summary_rows(table.name, version)((), known, numbers)

        assert in_order_of(found) == in_order_of(select(create_or_upgrade(tmp_path, table), table))
    events = pa.Table.from_batches(list(explode_events(iter(changes.to_batches(max_chunksize=7)))))
    assert in_order_of(events) == in_order_of(events_of(changes))


def in_order_of(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def test_samples_compared_part_by_part_are_those_compared_at_once(tmp_path: Path) -> None:
    envelope = Story("admin:a").envelope()
    told = [
        ReplicaOffsetsObserved(
            **{**envelope, "collected_at": at}, topic_id="t", topic="orders", partition=number, broker=1,
            high_watermark=at, log_end_offset=at,
        )
        for at in (5, 9, 7)
        for number in range(6)
    ]  # fmt: skip
    rows = published(told)
    NewestBatch(tmp_path, Channel.OFFSETS).apply(rows)
    read = pa.Table.from_batches(
        list(decode_samples((ReplicaOffsetsObserved,), Channel.OFFSETS)(iter(rows.to_batches())))
    )
    samples = read.filter(pc.equal(read["kind"], "replica_offsets"))
    samples = samples.append_column(ORDER, pa.array(range(samples.num_rows)))

    lay = newest_in_part(REPLICA_OFFSETS)
    nothing_known = arrow_schema(REPLICA_OFFSETS).empty_table()
    parts = [
        lay(nothing_known, samples.filter(pc.equal(pc.bit_wise_and(samples["partition"], 1), odd))) for odd in (0, 1)
    ]
    found = pa.concat_tables(parts)

    assert in_order_of(found) == in_order_of(select(create_or_upgrade(tmp_path, REPLICA_OFFSETS), REPLICA_OFFSETS))
    assert [row["position"] for row in read.to_pylist() if row["kind"] is None] == [17]


def test_tombstones_are_looked_for_when_the_log_begins_a_day_though_a_poller_has_begun_it_before() -> None:
    def source(name: str, kind: SourceKind, day: int) -> SourceState:
        return SourceState(ClusterId("cluster-1"), "c", name, kind, observed_until=Micros(day * DAY))

    def days(log: int, poll: int) -> frozenset[tuple[str, str, int]]:
        sources = [source("log", SourceKind.METADATA_LOG, log), source("poll", SourceKind.POLL, poll)]
        return days_of([*sources, source("admin", SourceKind.NONE, 99)])

    assert days(1, 1) <= days(1, 1)
    assert not days(1, 2) <= days(1, 1)
    assert not days(2, 2) <= days(1, 2)
