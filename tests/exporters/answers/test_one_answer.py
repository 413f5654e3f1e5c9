"""The same question has the same answer, whoever is asked: the terminal, the JSON API, the tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from exporters.metrics.jmx_names import JMX_METRICS
from exporters.read_model.reader import TablesReader
from exporters.web.pages.fleet import counts_of
from streaming.contracts.observations import DISKLESS
from streaming.contracts.sample_tables import GROUP_OFFSETS
from streaming.delta.log.queries import read_all
from streaming.delta.log.writer import APPEND, Writer
from streaming.delta.projections.of_clusters import recovered
from streaming.jobs.shards.batch import ReplicationBatch
from tests.changes.conftest import Story
from tests.exporters.answers.asked import objects, state
from tests.exporters.json_answers import json_answer
from tests.exporters.metrics.test_exposition import exposed as page_of
from tests.jobs.shards.test_batch import published
from tests.plugins.derived import shard_of


def test_groups_of_an_earlier_cluster_of_the_same_name_are_not_mixed_in(
    played_tables: Callable[..., Path], tmp_path: Path
) -> None:
    """A cluster that was built again under its old name has another id; the samples of the old one stay."""
    played = shutil.copytree(played_tables("under_min_isr", "consumer_groups", seconds=42), tmp_path / "tables")
    alone = objects(played, "groups")
    rows = read_all(DeltaTable(str(played / "group_offsets")))
    other = rows.set_column(rows.column_names.index("cluster_id"), "cluster_id", pa.array(["old"] * len(rows)))
    writer = Writer.opened(played, GROUP_OFFSETS)
    writer.write(other.cast(rows.schema), APPEND, {})
    names = ("cluster_id", "group", "lag", "partitions")
    assert [[row[name] for name in names] for row in objects(played, "groups")] == [
        [row[name] for name in names] for row in alone
    ]


def test_clusters_count_their_registered_brokers_and_leave_unknown_counts_out(tmp_path: Path) -> None:
    story = Story()
    story.snapshot([{}, {"isr": (1,)}], brokers=(1, 2, 3, 4))
    story.later().broker(4, registered=False)
    job = ReplicationBatch(tmp_path)
    job.apply(published(story.seen))
    job.project()

    (row,) = objects(tmp_path, "clusters")
    (of_api,) = json_answer(TablesReader(tmp_path).refresh(), story.now, "clusters")["clusters"]

    assert (row["brokers"], row["under_min_isr_partitions"], row["under_replicated_partitions"]) == (3, None, 1)
    states = of_api["states"]
    assert [states[name] for name in ("under_min_isr", "at_min_isr", "under_replicated")] == [None, None, 1]
    assert {broker["broker"]: broker.get("would_go_under_min_isr") for broker in of_api["brokers"]} == {
        1: None, 2: None, 3: None, 4: 0,
    }  # fmt: skip


def test_diskless_topics_are_counted_and_left_out_by_everybody_also_after_a_restart(tmp_path: Path) -> None:
    story = Story()
    story.config("2")
    story.config("true", topic="cold", key=DISKLESS)
    story.broker(1)
    story.snapshot([{}])
    story.later().partition(topic_id="topic-2", topic="cold", isr=(1,), leader=-1)
    job = ReplicationBatch(tmp_path)
    job.apply(published(story.seen))
    job.project()
    before, from_tables = shard_of(job).held, recovered(tmp_path, job.version)

    assert from_tables.state.configs == before.state.configs
    assert sorted(from_tables.tally.entries(), key=repr) == sorted(before.tally.entries(), key=repr)
    restarted = ReplicationBatch(tmp_path)  # from the state tables alone
    told = len(story.seen)
    story.later().partition(topic_id="topic-2", topic="cold", isr=(2,), leader=2, partition_epoch=1)
    restarted.apply(published(story.seen[told:]))
    assert [each.is_diskless for each in shard_of(restarted).held.state.partitions()] == [False, True]

    exposed = page_of(TablesReader(tmp_path), story.now)
    assert 'cluster_diskless_partitions{cluster="orders-eu"} 1\n' in exposed
    assert 'cluster_offline_partitions{cluster="orders-eu"} 0\n' in exposed
    assert 'partition_under_replicated{cluster="orders-eu",topic="cold",partition="0"} 0\n' in exposed
    (cluster,) = json_answer(TablesReader(tmp_path).refresh(), story.now, "clusters")["clusters"]
    assert {name: cluster["states"][name] for name in ("partitions", "diskless", "under_replicated", "offline")} == {
        "partitions": 2, "diskless": 1, "under_replicated": 0, "offline": 0,
    }  # fmt: skip

    assert "no unhealthy partitions" in state(tmp_path)
    (line,) = (line for line in state(tmp_path, everything=True).splitlines() if "cold" in line)
    assert "diskless" in line
    (row,) = objects(tmp_path, "clusters")
    assert (row["diskless_partitions"], row["offline_partitions"]) == (1, 0)


def test_partitions_that_never_had_a_replica_to_spare_are_not_at_min_isr(tmp_path: Path) -> None:
    """Kafka's MBean counts them for ever (KIP-427); everything else counts what lacks a replica."""
    story = Story()
    story.config("1")
    for broker in (1, 2):
        story.broker(broker)
    story.snapshot([{"replicas": (1,), "isr": (1,)}, {"replicas": (1, 2), "isr": (1,)}])
    job = ReplicationBatch(tmp_path)
    job.apply(published(story.seen))
    job.project()

    (row,) = objects(tmp_path, "clusters")
    exposed = page_of(TablesReader(tmp_path), story.now)
    snapshot = TablesReader(tmp_path).refresh()
    (fleet,) = snapshot.clusters.values()
    (of_kafka,) = (each for each in JMX_METRICS if each.mbean.endswith("name=AtMinIsrPartitionCount"))

    assert row["at_min_isr_partitions"] == 1
    assert 'cluster_at_min_isr_partitions{cluster="orders-eu"} 1\n' in exposed
    assert [each["is_at_min_isr"] for each in objects(tmp_path, everything=True)] == [True, False]
    assert counts_of(fleet).at_min_isr == 1
    assert sum(sample[1] for sample in of_kafka.metric.samples(fleet)) == 2
