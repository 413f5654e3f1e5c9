from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from streaming.changes.advice.reconciliation import METRIC_OF, Meter
from streaming.contracts.codec import encode
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import (
    DISKLESS,
    Channel,
    ConfigObserved,
    Observation,
    PartitionObserved,
    SourceKind,
)
from streaming.contracts.sample_blocks import TopicsSettingsObserved
from streaming.contracts.samples import (
    BrokerMetricObserved,
    GroupOffsetsObserved,
    QuorumMemberObserved,
    ReplicaOffsetsObserved,
    TransactionObserved,
)
from streaming.contracts.settings import BrokerFeatureObserved, BrokerSettingsObserved, TopicSettingsObserved
from streaming.contracts.state import PartitionState, SourceLag
from streaming.delta.progress import ProgressTable
from streaming.delta.quarantine import Quarantine, RefusedRecord
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.samples import SampleBatch
from streaming.jobs.streams.bus_source import SCHEMA
from tests.changes.conftest import Story
from tests.end_to_end.stories import essence, long_story
from tests.plugins.derived import shard_of


def published(observations: Iterable[Observation], start: int = 0) -> pa.Table:
    """What Spark hands to a batch, one observation a position."""
    return pa.Table.from_pylist([
        {"source": observed.source, "position": position, "payload": encode(observed), "damage": None}
        for position, observed in enumerate(observations, start=start)
    ], schema=SCHEMA)  # fmt: skip


def unreadable(source: str, start: int, count: int = 1) -> pa.Table:
    """Rows of a batch that nobody can read."""
    return pa.Table.from_pylist([
        {"source": source, "position": position, "payload": b"?", "damage": None}
        for position in range(start, start + count)
    ], schema=SCHEMA)  # fmt: skip


def offsets_sample(
    at: int = 1, partition: int = 0, story: Story | None = None, **fields: Any
) -> ReplicaOffsetsObserved:
    """The offsets of a replica, as the next observation of a story or as the only one; the time is the offset, too."""
    envelope = {**Story("admin:a").envelope(), "collected_at": at} if story is None else story.envelope()
    told = {**envelope, "high_watermark": at, **fields}
    return ReplicaOffsetsObserved(topic_id="t", topic="orders", partition=partition, broker=1, **told)


def metrics_sample(source: str) -> BrokerMetricObserved:
    return BrokerMetricObserved(
        cluster_id=ClusterId("c1"), cluster="demo", source=source, source_kind=SourceKind.NONE,
        occurred_not_before=Micros(1), occurred_not_after=Micros(1), collected_at=Micros(1),
        broker=BrokerId(1), metric="kafka_server_kafkaserver_brokerstate", metric_value=3.0,
    )  # fmt: skip


def rows(directory: Path, name: str) -> list[dict[str, Any]]:
    query = QueryBuilder().register("t", DeltaTable(str(directory / name)))
    found: list[dict[str, Any]] = pa.table(query.execute("select * from t")).to_pylist()
    return found


def diskless_for_a_while(told: list[Observation]) -> Iterable[Observation]:
    """Configure the one topic of a story as diskless, and later as replicated again."""
    (config,) = (it for it in told if isinstance(it, ConfigObserved))
    for place, value in ((60, None), (20, "true")):
        at = next(it for it in told[place:] if isinstance(it, PartitionObserved))
        times = {name: getattr(at, name) for name in ("occurred_not_before", "occurred_not_after", "collected_at")}
        flag = replace(config, key=DISKLESS, value=value, metadata_offset=at.metadata_offset, **times)
        told.insert(told.index(at), flag)
    return (replace(it, sequence=number) for number, it in enumerate(told, start=1))


def test_every_table_is_that_of_one_batch_however_a_log_is_cut_and_the_job_restarts(tmp_path: Path) -> None:
    log = published(diskless_for_a_while(long_story(seed=11, steps=80))).to_pylist()
    log.insert(40, {"source": "metadata_log:a", "position": 40, "payload": b"\x00", "damage": "checksum"})
    story = pa.Table.from_pylist([{**row, "position": at} for at, row in enumerate(log)], schema=SCHEMA)
    cuts = {"whole": [(0, len(log))], "cut": [(0, 45), (45, 70), (60, len(log))]}
    written: dict[str, list[Any]] = {}
    for name, bounds in cuts.items():
        for lower, upper in bounds:
            batch = ReplicationBatch(tmp_path / name)
            batch.apply(story.slice(lower, upper - lower))
            batch.project()
        when = ("quarantined_at", "as_of_version", "version", "ordinal", "committed_at")
        told = [
            sorted(
                ({key: row[key] for key in row if key not in when} for row in rows(tmp_path / name, table)), key=repr
            )
            for table in ("replication_events", "partition_state", "broker_state", "cluster_state", "quarantine")
        ]
        version = batch.version
        batch.apply(story.slice(10, 25))
        assert batch.version == version, "what comes again changes nothing"
        written[name] = [batch.sources()[0], essence(rows(tmp_path / name, "partition_changes")), *told]

    assert written["cut"] == written["whole"]
    told_of = [row["after"] for row in rows(tmp_path / "cut", "partition_changes")]
    assert {after["is_diskless"] for after in told_of if after} == {True, False}


def test_a_log_that_holds_two_clusters_has_a_state_for_each_and_is_read_once(tmp_path: Path) -> None:
    first, second = Story("poll:a", SourceKind.POLL), Story("poll:a", SourceKind.POLL)
    for story, repeats in ((first, 2), (second, 3)):
        story.snapshot()
        for _ in range(repeats):
            story.later().partition()
    first.later().partition(isr=(1, 2))
    others = [replace(item, cluster_id=ClusterId("cluster-2")) for item in second.seen]
    log, cut = published([*others, *first.seen]), len(others) + 5
    batch = ReplicationBatch(tmp_path)
    batch.apply(log.slice(0, cut))
    batch.apply(log.slice(cut))
    end = log.num_rows
    batch.apply(unreadable("poll:a", end, 3))
    again = ReplicationBatch(tmp_path)

    assert sorted(again.sources()[0]) == sorted(batch.sources()[0])
    by_cluster = {state.cluster_id: (state.position, state.duplicates) for state in again.sources()[0]}
    assert by_cluster == {"cluster-1": (end + 2, 2), "cluster-2": (end + 2, 3)}
    assert sum(state.quarantined for state in again.sources()[0]) == 3
    assert again.at("poll:a").position == end + 2, "also of a batch in which everything was refused"
    assert again.apply(log).observations == 0


def test_a_first_report_leaves_no_object_per_partition_behind_and_its_blocks_are_remembered(tmp_path: Path) -> None:
    story = Story()
    story.snapshot([{"leader_epoch": number % 7} for number in range(300)])
    gc.collect()
    before = sum(isinstance(each, PartitionState) for each in gc.get_objects())
    batch = ReplicationBatch(tmp_path)
    applied = batch.apply(published(story.seen))
    gc.collect()
    assert sum(isinstance(each, PartitionState) for each in gc.get_objects()) - before < 10
    assert applied.changes == len(rows(tmp_path, "partition_changes")) > 300
    assert len(shard_of(batch).repeated) == 1


def test_a_query_that_is_opened_again_leaves_nothing_of_the_one_before_in_memory(tmp_path: Path) -> None:
    """Also without a collector of garbage, which never looks at what there was when a state was read."""
    story = Story()
    story.snapshot()
    replication, samples = ReplicationBatch(tmp_path), SampleBatch(tmp_path)
    replication.apply(published(story.seen))
    replication.project()
    samples.apply(published([metrics_sample("jmx:a")]))
    held = [weakref.ref(each) for each in (shard_of(replication), replication, samples)]
    gc.disable()
    try:
        del replication, samples
        assert [each() for each in held] == [None] * len(held)
    finally:
        gc.enable()


def test_derived_tables_follow_steps_at_once_heartbeats_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def applied(position: int) -> bool:
        batch.apply(published(story.seen[position:], start=position))
        is_due = batch.is_due()
        if is_due:
            batch.project()
        return is_due

    story, batch = Story(), ReplicationBatch(tmp_path)
    story.snapshot()
    assert applied(0)

    known = len(story.seen)
    story.later().heartbeat()
    assert not applied(known)

    story.later().partition(isr=(1, 2), partition_epoch=1, cause="lag", evidence="proven")
    assert applied(known + 1)

    story.later().heartbeat()
    assert not applied(known + 2)
    monkeypatch.setattr("streaming.jobs.shards.batch.SECONDS_WHILE_DEGRADED", 0.0)
    assert batch.is_due(), "the seconds of the partition that is shrunk go on"
    batch.project()
    assert not batch.is_due(), "there is nothing that they lack"

    story.later().partition(partition_epoch=2, cause="expand", evidence="proven")
    assert applied(known + 3)
    story.later().heartbeat()
    assert not applied(known + 4)
    monkeypatch.setattr("streaming.jobs.shards.batch.SECONDS_BETWEEN_HEARTBEATS", 0.0)
    assert batch.is_due()


def test_what_was_deleted_leaves_the_table_with_the_next_day_but_one(tmp_path: Path) -> None:
    batch, story, states = ReplicationBatch(tmp_path), Story(), []
    story.snapshot([{}])
    story.later(5).removed()
    for day in range(3):
        batch.apply(published(story.seen, day * 100))
        batch.project()
        states.append([row["is_deleted"] for row in rows(tmp_path, "partition_state")])
        story.seen = []
        story.later(86_400).heartbeat()
    assert states == [[True], [True], []]


def test_a_cluster_keeps_the_totals_of_what_was_deleted(tmp_path: Path) -> None:
    story = Story()
    story.snapshot([{}, {}])
    story.config("3")
    story.later(5).partition(0, isr=(1, 2), partition_epoch=1, cause="lag", evidence="proven")
    story.later(50).removed()
    cut = len(story.seen)
    for _ in range(2):
        story.later(86_400).heartbeat()
    batch = ReplicationBatch(tmp_path)
    batch.apply(published(story.seen[:cut]))
    batch.apply(published(story.seen[cut:], cut))
    batch.project()

    assert rows(tmp_path, "partition_state") == []
    (cluster,) = rows(tmp_path, "cluster_state")
    assert (cluster["expired_isr_shrinks"], cluster["expired_under_replicated_seconds"]) == (1, 50.0)
    assert (cluster["isr_shrinks"], cluster["under_replicated_seconds"]) == (1, 50.0)


def test_what_is_refused_goes_to_quarantine_once_and_the_rest_goes_on(tmp_path: Path) -> None:
    story = Story()
    story.snapshot()
    torn = {"source": "metadata_log:a", "position": 98, "payload": b"\x00x", "damage": "checksum"}
    odd = {"source": "metadata_log:a", "position": 99, "payload": b'{"v":1,"kind":"dream"}', "damage": None}
    mixed = pa.Table.from_pylist([*published(story.seen).to_pylist(), torn, odd], schema=SCHEMA)
    first = ReplicationBatch(tmp_path).apply(mixed)
    ReplicationBatch(tmp_path).apply(mixed)
    assert (first.observations, first.refused) == (len(story.seen), 2)
    assert [(row["position"], row["reason"], row["raw"]) for row in rows(tmp_path, "quarantine")] == [
        (98, "checksum", b"\x00x"),
        (99, "unknown kind 'dream'", b'{"v":1,"kind":"dream"}'),
    ]


def test_what_was_refused_of_samples_counts_once_whenever_the_job_is_killed(tmp_path: Path) -> None:
    """Also what came before the first sample of its source, and what no report has counted before a kill."""
    bad, sample = b"?", encode(metrics_sample("jmx:a"))
    payloads = [bad, sample, bad, sample, bad]
    log = pa.Table.from_pylist([
        {"source": "jmx:a", "position": number, "payload": payload, "damage": None}
        for number, payload in enumerate(payloads)
    ], schema=SCHEMA)  # fmt: skip
    counts = []
    for end, is_reported in ((2, True), (3, False), (3, True), (3, False), (5, False), (5, True)):
        batch = SampleBatch(tmp_path)
        batch.apply(log.slice(0, end))
        sources, _ = batch.sources()
        counts += [source.quarantined for source in sources]
        if is_reported:
            ProgressTable(tmp_path, Channel.SAMPLES).replace([(source, SourceLag()) for source in sources], None)

    assert counts == [1, 2, 2, 2, 3, 3]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e300])
def test_a_meter_that_is_no_count_does_not_stop_the_query(tmp_path: Path, value: float) -> None:
    ReplicationBatch(tmp_path)
    sample = replace(metrics_sample("jmx:a"), metric=METRIC_OF[Meter.ISR_SHRINKS], metric_value=value)
    batch = SampleBatch(tmp_path)
    first, again = (batch.apply(published([sample])) for _ in range(2))
    assert (first.observations, first.refused) == (math.isfinite(value), not math.isfinite(value))
    assert again.observations == 0


def test_every_kind_of_sample_has_its_table_and_a_group_its_lag(tmp_path: Path) -> None:
    envelope = Story("admin:a").envelope()
    identity: dict[str, Any] = {"topic_id": "t", "topic": "orders", "partition": 0}
    later = identity | {"partition": 1, "log_start_offset": 0}
    samples = [
        ReplicaOffsetsObserved(**envelope, **identity, broker=1, high_watermark=9),
        GroupOffsetsObserved(
            **envelope, **identity, group="g", committed_offset=4, log_start_offset=6, high_watermark=9
        ),
        GroupOffsetsObserved(**envelope, **later, group="g", committed_offset=12, high_watermark=9),
        TransactionObserved(**envelope, producer_id=7, producer_epoch=0, transaction_state="Ongoing"),
        QuorumMemberObserved(**envelope, node=100, is_voter=True, controller=100, controller_epoch=3),
    ]

    batch = SampleBatch(tmp_path)
    batch.apply(published(samples))

    groups = [(row["partition"], row["lag"], row["records_lost"]) for row in rows(tmp_path, "group_offsets")]
    assert sorted(groups) == [(0, 3, 2), (1, 0, 0)]
    assert [row["high_watermark"] for row in rows(tmp_path, "replica_offsets")] == [9]
    assert [row["is_hanging"] for row in rows(tmp_path, "transactions")] == [False]
    assert [row["controller_epoch"] for row in rows(tmp_path, "quorum_members")] == [3]
    assert rows(tmp_path, "log_directories") == []


def test_settings_have_their_tables_and_topics_what_follows_from_theirs(tmp_path: Path) -> None:
    envelope = {**Story("samples:a").envelope(), "broker": 1}
    topics = TopicsSettingsObserved(
        **envelope,
        arrays={
            "topic_id": ("t", "u", "v"),
            "topic": ("orders", "__consumer_offsets", "connect-configs"),
            "partition_count": (6, 50, 1),
            "replication_factor": (3, 1, 3),
            "min_isr": (2, 1, 1),
            "allows_unclean_election": (False, False, True),
            "cleanup_policy": ("delete", "compact", "delete"),
        },
    )
    single = TopicSettingsObserved(**envelope, topic_id="w", topic="single", partition_count=1, replication_factor=1)
    broker = BrokerSettingsObserved(**envelope, leader_throttled_rate=2**40, broker_session_timeout_ms=9000)
    feature = BrokerFeatureObserved(**envelope, feature="metadata.version", supported_level=30, finalized_level=27)

    batch = SampleBatch(tmp_path)
    batch.apply(published([topics, single, broker, feature]))

    found = {row["topic"]: row for row in rows(tmp_path, "topic_settings")}
    assert {topic: (row["role"], row["weaknesses"]) for topic, row in found.items()} == {
        "orders": (None, []),
        "__consumer_offsets": ("consumer_offsets", ["one_replica"]),
        "connect-configs": ("connect_configs", ["not_compacted", "unclean_election", "min_isr_one"]),
        "single": (None, ["one_replica"]),
    }
    assert {row["consequence"] for row in found.values()} == {
        None,
        "commits and rebalances of the groups kept there fail",
        "changes of connectors fail (a guess by its name)",
    }
    assert [(found[name]["min_isr"], found[name]["partition_count"]) for name in ("orders", "single")] == [
        (2, 6), (None, 1),
    ]  # fmt: skip
    later = replace(
        topics,
        collected_at=topics.collected_at + 1,
        arrays={name: values[:1] for name, values in topics.arrays.items()},
    )
    batch.apply(published([later], start=4))
    assert [row["topic"] for row in rows(tmp_path, "topic_settings")] == ["orders"], "the others were deleted"
    (of_broker,) = rows(tmp_path, "broker_settings")
    assert (of_broker["leader_throttled_rate"], of_broker["follower_throttled_rate"]) == (2**40, None)
    (of_feature,) = rows(tmp_path, "broker_features")
    assert (of_feature["feature"], of_feature["supported_level"], of_feature["finalized_level"]) == (
        "metadata.version", 30, 27,
    )  # fmt: skip


def test_what_belongs_on_another_channel_is_refused(tmp_path: Path) -> None:
    story = Story()
    story.snapshot()
    applied = SampleBatch(tmp_path).apply(published(story.seen))
    assert (applied.observations, applied.refused) == (0, len(story.seen))
    assert "does not belong on the channel samples" in rows(tmp_path, "quarantine")[0]["reason"]


def test_refusals_of_a_source_that_nobody_knows_yet_count_once_in_any_cut_and_kill(tmp_path: Path) -> None:
    """Quarantine was written up to 99, the process died before the change log was; then batches come in other cuts."""
    log = unreadable("metadata_log:a", 0, 100)
    refused = [
        RefusedRecord(source="metadata_log:a", log_id=None, position=number, reason="not JSON", raw=b"?")
        for number in range(100)
    ]
    Quarantine(tmp_path, Channel.REPLICATION).add(refused, Micros(1))
    ReplicationBatch(tmp_path).apply(log.slice(0, 50))
    ReplicationBatch(tmp_path).apply(log.slice(50, 20))
    batch = ReplicationBatch(tmp_path)
    batch.apply(log.slice(30, 70))
    assert {source: at.position for source, at in batch.applied.items()} == {"metadata_log:a": 99}
    story = Story()
    story.snapshot()

    batch.apply(published(story.seen, start=100))
    assert [source.quarantined for source in batch.sources()[0]] == [100]
    again = ReplicationBatch(tmp_path)
    story.heartbeat()
    again.apply(published(story.seen[-1:], start=100 + len(story.seen)))
    assert [source.quarantined for source in again.sources()[0]] == [100]


def test_a_batch_of_refused_records_only_moves_their_source_too(tmp_path: Path) -> None:
    story = Story()
    story.snapshot()
    batch = ReplicationBatch(tmp_path)
    batch.apply(published(story.seen))
    end = len(story.seen)

    batch.apply(unreadable("metadata_log:a", end))

    sources = [row for row in rows(tmp_path, "partition_changes") if row["subject"] == "source"]
    newest = max(sources, key=lambda row: row["version"])["source_after"]
    assert (newest["position"], newest["quarantined"], newest["sequence"]) == (end, 1, end)
    (source,) = batch.sources()[0]
    assert (source.position, source.quarantined) == (end, 1)
    again = ReplicationBatch(tmp_path)
    story.heartbeat()
    again.apply(published(story.seen[end:], start=end + 1))
    assert [each.quarantined for each in again.sources()[0]] == [1], "after a kill, too"


def test_sources_of_one_batch_are_merged_by_time_each_in_its_own_order(tmp_path: Path) -> None:
    log, poll = Story(), Story("admin:a", SourceKind.POLL)
    log.snapshot()
    poll.later(30)
    poll.snapshot([{"isr": (1, 2), "partition_epoch": None}])
    log.later(50).heartbeat()
    poll.later(50)
    poll.snapshot([{"isr": (1, 2), "partition_epoch": None}])
    both = pa.concat_tables([published(poll.seen), published(log.seen)])
    ReplicationBatch(tmp_path).apply(both)
    assert [row["cause"] for row in rows(tmp_path, "partition_changes") if row["left_isr"]] == []
