"""Records of a newer isrwatch on the bus: the job stops with a sentence, quarantines nothing and moves no position."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.codec import encode
from streaming.contracts.observations import SCHEMA_VERSION, Channel
from streaming.contracts.samples import BrokerMetricObserved, ReplicaOffsetsObserved
from streaming.errors import NewerFormat
from streaming.jobs.application import QUERIES
from streaming.jobs.queries import JobLocations
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.samples import SampleBatch
from streaming.jobs.streams import bus_source
from streaming.jobs.streams.bus_source import SCHEMA
from streaming.jobs.supervised import SupervisedQuery
from streaming.settings import JobSettings
from tests.changes.conftest import Story
from tests.jobs.failed_starts import failures_of
from tests.jobs.shards.test_batch import published, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from streaming.contracts.observations import Observation

NEWER = SCHEMA_VERSION + 1
SENTENCE = (
    f"the bus holds records of format {NEWER}, this program reads {SCHEMA_VERSION}; "
    "upgrade isrwatch job before the collector"
)
PATIENCE = 300.0


def newer(observed: Observation) -> bytes:
    """An observation as a newer program may write it."""
    return json.dumps(json.loads(encode(observed)) | {"v": NEWER, "kind": "news", "when": {"exactly": True}}).encode()


def story_of(channel: Channel) -> list[Observation]:
    story = Story("admin:a")
    if channel is Channel.REPLICATION:
        story.snapshot([{}, {}])
        story.later().heartbeat()
        return story.seen
    identity: dict[str, Any] = {"topic_id": "t", "topic": "orders", "partition": 0}
    return [
        ReplicaOffsetsObserved(**envelope, **identity, broker=number, high_watermark=number)
        if number % 2 == 0
        else BrokerMetricObserved(**envelope, broker=number, metric="kafka_server_x", metric_value=1.0)
        for number in range(5)
        for envelope in [{**story.envelope(), "collected_at": number + 1}]
    ]


def with_newer(observations: list[Observation], at: int, start: int) -> pa.Table:
    """Rows of a batch in which one record is newer."""
    batch = published(observations, start=start).to_pylist()
    batch[at]["payload"] = newer(observations[at])
    return pa.Table.from_pylist(batch, schema=SCHEMA)


def tables_of(directory: Path) -> dict[str, int]:
    """Versions of the tables."""
    return {
        path.name: DeltaTable(str(path)).version()
        for path in sorted(directory.iterdir())
        if DeltaTable.is_deltatable(str(path))
    }


@pytest.mark.parametrize("at", [0, 2, -1])
@pytest.mark.parametrize("channel", Channel)
def test_a_batch_with_a_newer_record_changes_nothing_until_later(tmp_path: Path, channel: Channel, at: int) -> None:
    def opened() -> ReplicationBatch | SampleBatch:
        return ReplicationBatch(tmp_path) if channel is Channel.REPLICATION else SampleBatch(tmp_path)

    story = story_of(channel)
    batch = opened()
    batch.apply(published(story[:2]))
    before = tables_of(tmp_path), batch.at("admin:a").position

    for _ in range(2):
        with pytest.raises(NewerFormat) as stopped:
            batch.apply(with_newer(story[2:], at, start=2))
        assert str(stopped.value) == SENTENCE

    assert (tables_of(tmp_path), batch.at("admin:a").position) == before
    assert before[1] == 1
    assert rows(tmp_path, "quarantine") == []
    upgraded = opened()
    assert upgraded.apply(published(story[2:], start=2)).observations == len(story) - 2
    assert upgraded.at("admin:a").position == len(story) - 1


def test_a_damaged_record_is_quarantined_whatever_its_bytes_say(tmp_path: Path) -> None:
    story = story_of(Channel.REPLICATION)
    batch = with_newer(story, 1, start=0).to_pylist()
    batch[1]["damage"] = "checksum"
    applied = ReplicationBatch(tmp_path).apply(pa.Table.from_pylist(batch, schema=SCHEMA))
    assert (applied.observations, applied.refused) == (len(story) - 1, 1)


@pytest.mark.spark
@pytest.mark.parametrize("channel", Channel)
def test_a_query_that_meets_a_newer_one_stops(spark: SparkSession, places: JobLocations, channel: Channel) -> None:
    story = story_of(channel)
    bus_source.register(spark)
    reports: list[str] = []
    settings = JobSettings(listen="")
    with closing(DirectoryPublisher(places.bus, segment_bytes=100_000)) as publisher:
        publisher.publish(story[:3])
        publisher.publish_raw(channel, "admin:a", newer(story[3]))
        publisher.publish(story[3:])
    query = SupervisedQuery(channel, QUERIES[channel], settings, places, reports.append)
    query.start(spark)
    deadline = time.monotonic() + PATIENCE
    try:
        while not query.is_lost:
            query.check(spark)
            assert time.monotonic() < deadline, query.last_error
            time.sleep(0.05)
    finally:
        query.stop()

    assert query.last_error == SENTENCE
    assert [line for line in reports if "stopped" in line] == [f"the query {channel} stopped for good: {SENTENCE}"]
    assert failures_of(channel, reports) == ([], query.restarts), reports
    assert not query.is_superseded
    assert query.progress is not None
    assert {at.position for at in query.progress.applied.values()} <= {-1}
    assert rows(places.tables, "quarantine") == []
    again = QUERIES[channel].open(places, settings)
    assert again.progress is not None
    assert again.progress.at("admin:a").position == -1
