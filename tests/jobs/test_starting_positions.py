"""Reading starts where the tables stopped, whatever a checkpoint says, with real Spark."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.contracts.observations import Channel, SourceKind
from streaming.delta.log.maintenance import KEEP_ALL
from streaming.jobs.application import Application, unapplied
from streaming.jobs.queries import JobLocations
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.streams.bus_source import arrow_batches
from streaming.settings import JobSettings
from tests.changes.conftest import Story
from tests.end_to_end.stories import essence, expected_changes, long_story
from tests.jobs.shards.test_batch import rows
from tests.jobs.test_isolation import eventually, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from streaming.contracts.observations import Observation

pytestmark = pytest.mark.spark


@pytest.fixture
def places(tmp_path: Path) -> JobLocations:
    return JobLocations(
        bus=tmp_path / "bus", tables=tmp_path / "tables", checkpoint=tmp_path / "checkpoint", retention=KEEP_ALL
    )


def publish(places: JobLocations, observations: Sequence[Observation]) -> None:
    """Publish observations, each in a segment of its own that nobody deletes."""
    with closing(DirectoryPublisher(places.bus, segment_bytes=1 << 30)) as publisher:
        publisher.publish(observations)


def applied(places: JobLocations, spark: SparkSession, upto: int) -> None:
    """Let a job apply everything up to the sequence of an observation."""
    application = Application(JobSettings(listen="", queries=("replication",)), places, print)
    progress = application.queries[0].progress
    assert progress is not None
    with running(application, spark) as ended:
        eventually(lambda: max((source.sequence for source in progress.sources()[0]), default=0) >= upto)
    assert ended == []


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose default file system is not that of this machine."""
    spark.conf.set("fs.defaultFS", "elsewhere://cluster")
    yield spark
    spark.conf.unset("fs.defaultFS")


def test_neither_a_broken_checkpoint_nor_one_that_is_ahead_of_the_tables_costs_a_change(
    elsewhere: SparkSession, places: JobLocations
) -> None:
    """A crash breaks the checkpoint, which is on this machine; later the tables are brought back from an older copy."""
    story = long_story(seed=3, steps=120)
    half, backup = len(story) // 2, places.tables.with_name("backup")
    checkpoint = places.checkpoint / Channel.REPLICATION / "metadata"
    publish(places, story[:half])
    applied(places, elsewhere, half)
    shutil.copytree(places.tables, backup)
    checkpoint.write_text("not JSON")
    publish(places, story[half:])
    applied(places, elsewhere, len(story))
    assert essence(rows(places.tables, "partition_changes")) == expected_changes(story)
    assert json.loads(checkpoint.read_text())
    shutil.rmtree(places.tables)
    backup.rename(places.tables)
    applied(places, elsewhere, len(story))
    assert essence(rows(places.tables, "partition_changes")) == expected_changes(story)


def test_a_start_reads_each_log_from_the_last_record_that_was_applied(places: JobLocations) -> None:
    first, second = (Story(f"admin:{name}", SourceKind.POLL) for name in "ab")
    for story in (first, second):
        story.snapshot([{}])
    publish(places, first.seen)
    bus = DirectoryReader(places.bus)
    tables = ReplicationBatch(places.tables)
    read = list(bus.read(Channel.REPLICATION, "admin:a", 0, bus.end_positions(Channel.REPLICATION)["admin:a"]))
    log_id = bus.segments(Channel.REPLICATION, "admin:a")[0].log_id
    tables.apply(pa.Table.from_batches(arrow_batches("admin:a", read, log_id)))
    publish(places, second.seen)

    assert unapplied(Channel.REPLICATION, places, tables) == {
        "admin:a": (read[-1].position, log_id),
        "admin:b": (0, bus.segments(Channel.REPLICATION, "admin:b")[0].log_id),
    }
