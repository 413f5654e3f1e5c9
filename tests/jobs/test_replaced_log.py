"""A log on the bus that is another one than before, longer or shorter: nothing of it is taken for a repetition."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming.datasource import ReadAllAvailable

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.contracts.events import EventKind
from streaming.contracts.identifiers import NOWHERE, LogPosition
from streaming.contracts.observations import Channel, Observation, SourceKind
from streaming.contracts.samples import BrokerMetricObserved
from streaming.contracts.tables import SOURCE_PROGRESS
from streaming.errors import IsrwatchError
from streaming.jobs.application import QUERIES, unapplied
from streaming.jobs.metrics import Reporter
from streaming.jobs.queries import JobLocations
from streaming.jobs.streams.bus_source import BusStreamReader
from streaming.jobs.supervised import SupervisedQuery
from streaming.settings import JobSettings
from tests.changes.conftest import Story
from tests.end_to_end.stories import essence, expected_changes, long_story
from tests.jobs.shards.test_batch import offsets_sample, rows
from tests.plugins.logs import rows_of_log
from tests.plugins.table_writes import write

REPLICATION = Channel.REPLICATION
SEGMENT_BYTES = 20_000


def publish(places: JobLocations, observations: Sequence[Observation], pieces: int = 10) -> None:
    """Publish as one run of a collector does, in pieces, so that there are segments."""
    size = -(-len(observations) // pieces)
    with closing(DirectoryPublisher(places.bus, segment_bytes=SEGMENT_BYTES, fsync=False)) as publisher:
        for start in range(0, len(observations), size):
            publisher.publish(observations[start : start + size])


def back_up(places: JobLocations) -> None:
    shutil.copytree(places.bus, places.bus.with_name("copy"))


def restore(places: JobLocations) -> None:
    """Bring the bus back from its copy."""
    shutil.rmtree(places.bus)
    places.bus.with_name("copy").rename(places.bus)


def applied(
    places: JobLocations, channel: Channel = REPLICATION, query: str = "replication", *, is_killed: bool = False
) -> list[str]:
    """Open the tables as a start does, apply what a query without a checkpoint would read; return what is reported.

    The job stores how far its sources are, unless it is killed before.
    """
    reported: list[str] = []
    opened = SupervisedQuery(query, QUERIES[query], JobSettings(listen=""), places, reported.append)
    assert opened.progress is not None
    bus = DirectoryReader(places.bus)
    ends = bus.end_positions(channel)
    batches = [
        batch
        for source, at in unapplied(channel, places, opened.progress).items()
        if source in ends
        for batch in rows_of_log(bus, channel, source, at.position)
    ]
    if batches:
        opened.batch.apply(pa.Table.from_batches(batches))  # type: ignore[union-attr]
    if not is_killed:
        Reporter([opened], places).report()
    return reported


def missed(places: JobLocations) -> list[str]:
    """Return the details of the events about lost observations of the source."""
    found = (event for row in rows(places.tables, "partition_changes") for event in row["events"] or ())
    return [event["detail"] for event in found if event["event"] == EventKind.CHANGES_MISSED]


@pytest.mark.parametrize("before", [0.3, 0.9], ids=["longer than before", "shorter than before"])
def test_a_bus_that_was_lost_and_begun_again_is_read_from_its_begin(places: JobLocations, before: float) -> None:
    story = long_story(seed=11, steps=120)
    cut = int(len(story) * before)
    publish(places, story[:cut])
    applied(places)
    shutil.rmtree(places.bus)
    publish(places, story[cut:])
    (sentence,) = applied(places)
    assert "replication/metadata_log:a on the bus was replaced" in sentence
    assert "its begin" in sentence
    assert essence_without_loss(places) == expected_changes(story)
    (detail,) = missed(places)
    assert f"was replaced, restored from a copy, or cut: what it held after number {cut}, and" in detail


def essence_without_loss(places: JobLocations) -> list[dict[str, Any]]:
    return essence([row for row in rows(places.tables, "partition_changes") if row["subject"] != "source"])


def test_a_start_on_the_same_log_goes_on_whichever_run_of_the_collector_wrote_it(places: JobLocations) -> None:
    story = long_story(seed=12, steps=120)
    told = []
    for start in range(0, len(story), 40):
        publish(places, story[start : start + 40])
        told += applied(places)
    assert told == []
    assert missed(places) == []
    assert essence_without_loss(places) == expected_changes(story)


@pytest.mark.parametrize("applied_since", [30, 90], ids=["in the run of the copy", "in a later run"])
def test_a_bus_restored_from_a_copy_is_recognised_and_none_skipped(places: JobLocations, applied_since: int) -> None:
    """The source reports again what the bus lost, as a metadata log does whose checkpoint is restored with the bus."""
    story = long_story(seed=13, steps=120)
    publish(places, story[:60])
    back_up(places)
    publish(places, story[60 : 60 + applied_since])
    applied(places)
    restore(places)
    publish(places, story[60:])
    (sentence,) = applied(places)
    assert "was replaced, restored from a copy, or cut" in sentence
    assert essence_without_loss(places) == expected_changes(story)


def test_polls_that_are_read_again_from_a_copy_are_old_and_change_nothing(places: JobLocations) -> None:
    """The copy is of before the runs that the tables know, so it is read from its begin: content decides, by time."""
    story = Story("admin:a", SourceKind.POLL)
    story.snapshot([{"leader_epoch": None, "partition_epoch": None}] * 3)
    for isr in ((1, 2), (1, 2, 3), (1, 3), (1, 2, 3), (2, 3)):
        story.later(90).partition(0, isr=isr, leader=isr[0], leader_epoch=None, partition_epoch=None)
    known = len(story.seen)
    publish(places, story.seen[:-3])
    back_up(places)
    publish(places, story.seen[-3:-1])
    publish(places, story.seen[-1:])
    applied(places)
    restore(places)
    story.later(90).partition(0, isr=(1,), leader=1, leader_epoch=None, partition_epoch=None)
    publish(places, story.seen[known:])

    (sentence,) = applied(places)

    assert "was replaced" in sentence
    changes = sorted(rows(places.tables, "partition_changes"), key=itemgetter("version", "ordinal"))
    isrs = [row["after"]["isr"] for row in changes if row["partition"] == 0]
    assert isrs == [[1, 2, 3], [1, 2], [1, 2, 3], [1, 3], [1, 2, 3], [2, 3], [1]]


def test_a_copy_that_nobody_wrote_on_is_read_on_when_its_writer_does(places: JobLocations) -> None:
    story = long_story(seed=14, steps=100)
    publish(places, story[:60])
    back_up(places)
    publish(places, story[60:80])
    applied(places)
    restore(places)
    first = applied(places)
    publish(places, story[60:])
    assert [len(first), len(applied(places))] == [1, 0]
    assert essence_without_loss(places) == expected_changes(story)


def test_a_log_that_comes_back_as_another_one_while_the_job_runs_stops_the_query(places: JobLocations) -> None:
    story = long_story(seed=16, steps=100)
    publish(places, story[:30])
    reader = BusStreamReader(places.bus, REPLICATION, {}, 1 << 25, wait_seconds=0)
    at = reader.latestOffset({}, ReadAllAvailable())
    planned = reader.partitions({}, at)
    shutil.rmtree(places.bus)
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    publish(places, story)
    with pytest.raises(IsrwatchError, match="replication/metadata_log:a on the bus was replaced"):
        reader.latestOffset(at, ReadAllAvailable())
    with pytest.raises(IsrwatchError, match="replication/metadata_log:a on the bus was replaced"):
        [list(reader.read(piece)) for piece in planned]


def test_what_was_applied_of_another_log_deletes_nothing(places: JobLocations) -> None:
    story = long_story(seed=17, steps=80)
    publish(places, story)
    bus = DirectoryReader(places.bus)
    before = bus.segments(REPLICATION, "metadata_log:a")
    bus.delete_below(REPLICATION, "metadata_log:a", 1 << 40, log_id=1)
    assert before == bus.segments(REPLICATION, "metadata_log:a")
    bus.delete_below(REPLICATION, "metadata_log:a", 1 << 40, log_id=before[0].log_id)
    assert len(bus.segments(REPLICATION, "metadata_log:a")) == 1


def test_the_last_common_record_is_the_applied_one_unless_the_log_lacks_it(places: JobLocations) -> None:
    story = long_story(seed=18, steps=60)
    publish(places, story[:30])
    bus, source = DirectoryReader(places.bus), "metadata_log:a"
    end = bus.end_positions(REPLICATION)[source]
    (log_id,) = {segment.log_id for segment in bus.segments(REPLICATION, source)}
    last = [item.position for item in bus.read(REPLICATION, source, 0, end)][-1]
    back_up(places)
    publish(places, story[30:])
    later = bus.segments(REPLICATION, source)[-1].log_id

    def common(position: int, of: int | None = log_id) -> LogPosition:
        return bus.last_common(REPLICATION, source, LogPosition(position, of))

    assert common(last) == (last, log_id)
    assert common(0) == (0, log_id)
    assert common(end) == (last, log_id), "what the run of the copy wrote ends there"
    assert common(last, 1) == common(last, None) == NOWHERE
    assert bus.last_common(REPLICATION, source, NOWHERE) == NOWHERE
    assert bus.last_common(REPLICATION, "nobody", LogPosition(5, 1)) == (5, 1), "nothing can be said of it"

    for segment in bus.segments(REPLICATION, source):
        if segment.log_id == log_id:
            segment.path.unlink()
    assert common(last) == (last, log_id), "only the run that went on from its run is left"

    restore(places)
    assert common(end + 1, later) == (last, log_id), "the run whose end is missing went on from the one of the copy"
    publish(places, story[30:])
    assert common(end + 1, later) == (last, log_id), "also after another run has gone on from it"


of_both_queries = pytest.mark.parametrize(
    ("channel", "query", "source"),
    [(REPLICATION, "replication", "metadata_log:a"), (Channel.SAMPLES, "samples", "admin:a")],
)


def refuse(places: JobLocations, channel: Channel, source: str, count: int, mark: bytes) -> None:
    with closing(DirectoryPublisher(places.bus, segment_bytes=SEGMENT_BYTES, fsync=False)) as publisher:
        for number in range(count):
            publisher.publish_raw(channel, source, mark + str(number).encode())


def counted(places: JobLocations) -> list[bytes]:
    """Return every record in quarantine, as often as it is counted."""
    return sorted(row["raw"] for row in rows(places.tables, "quarantine") for _ in range(row["records"]))


@of_both_queries
@pytest.mark.parametrize(
    "is_killed",
    [pytest.param(False, id="stored", marks=pytest.mark.long), pytest.param(True, id="killed before it stored it")],
)
def test_what_is_refused_of_another_log_is_quarantined_once_though_its_positions_are_lower(
    places: JobLocations, channel: Channel, query: str, source: str, *, is_killed: bool
) -> None:
    before: list[Observation] = [offsets_sample(7)] if channel is Channel.SAMPLES else long_story(seed=19, steps=30)
    publish(places, before)
    refuse(places, channel, source, 4, b"old")
    applied(places, channel, query)
    shutil.rmtree(places.bus)
    refuse(places, channel, source, 3, b"new")
    assert len(applied(places, channel, query, is_killed=is_killed)) == 1
    applied(places, channel, query)
    applied(places, channel, query)
    assert counted(places) == [b"new0", b"new1", b"new2", b"old0", b"old1", b"old2", b"old3"]


@of_both_queries
@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(1, id="by one run", marks=pytest.mark.long),
        pytest.param(2, id="by two runs, of which no table has the first"),
    ],
)
def test_what_was_refused_of_a_log_that_is_restored_from_a_copy_counts_once(
    places: JobLocations, channel: Channel, query: str, source: str, runs: int
) -> None:
    story = Story(source, SourceKind.POLL)

    def publish_more() -> None:
        sample = offsets_sample(7, story=story)
        story.heartbeat()
        publish(places, [sample if channel is Channel.SAMPLES else story.seen[-1]])

    publish_more()
    refuse(places, channel, source, 3, b"odd")
    back_up(places)
    for _ in range(runs):
        publish_more()
    applied(places, channel, query)
    restore(places)
    publish_more()
    applied(places, channel, query)

    assert counted(places) == [b"odd0", b"odd1", b"odd2"]
    assert [row["quarantined"] for row in rows(places.tables, "source_progress")] == [3]


def test_what_was_refused_counts_once_though_the_log_that_was_read_is_unknown(places: JobLocations) -> None:
    """The table of progress lacks the column, so all of the log is read again."""
    publish(places, [offsets_sample(7)])
    refuse(places, Channel.SAMPLES, "admin:a", 3, b"odd")
    applied(places, Channel.SAMPLES, "samples")
    progress = DeltaTable(str(places.tables / SOURCE_PROGRESS.name))
    kept = progress.to_pyarrow_table().drop_columns(["log_id"])
    write(progress, kept, "overwrite")
    assert len(applied(places, Channel.SAMPLES, "samples")) == 1
    assert counted(places) == [b"odd0", b"odd1", b"odd2"]
    assert [row["quarantined"] for row in rows(places.tables, "source_progress")] == [3]


@pytest.mark.parametrize("source", ["metrics:a", "admin:a"])
def test_samples_of_a_log_that_comes_late_are_no_old_ones(places: JobLocations, source: str) -> None:
    """The bus was lost, and what begins it again is not there yet when the job starts."""
    channel, query, story = Channel.SAMPLES, "samples", Story(source)

    def published(values: range) -> None:
        of_metric: dict[str, Any] = {"broker": 1, "metric": "messages_in_total"}
        samples = [
            BrokerMetricObserved(**story.later().envelope(), metric_value=value, **of_metric)
            if source == "metrics:a"
            else offsets_sample(value, story=story.later())
            for value in values
        ]
        publish(places, samples)

    published(range(3))
    applied(places, channel, query)
    shutil.rmtree(places.bus)
    opened = SupervisedQuery(query, QUERIES[query], JobSettings(listen=""), places, print)
    assert opened.progress is not None
    starting = unapplied(channel, places, opened.progress)
    reader = BusStreamReader(places.bus, channel, starting, 1 << 25, wait_seconds=0)
    published(range(1))

    with pytest.raises(IsrwatchError, match=f"{channel}/{source} on the bus was replaced"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


@pytest.mark.parametrize(
    ("is_killed", "is_stopped"),
    [
        pytest.param(False, True, id="stored, and stopped before its first batch"),
        pytest.param(True, False, id="killed before it stored how far it was"),
        pytest.param(False, False, id="stored", marks=pytest.mark.long),
        pytest.param(True, True, id="killed, and stopped", marks=pytest.mark.long),
    ],
)
def test_samples_of_a_clock_that_was_ahead_stand_in_the_way_of_no_bus_that_is_begun_again(
    places: JobLocations, *, is_killed: bool, is_stopped: bool
) -> None:
    channel, story = Channel.SAMPLES, Story("metrics:a")
    sample = {"broker": 1, "metric": "messages_in_total"}

    def published(value: int, ahead: int) -> None:
        envelope = {**story.later().envelope()}
        envelope["collected_at"] += ahead
        publish(places, [BrokerMetricObserved(**envelope, metric_value=value, **sample)])

    published(1, 3_000_000_000)
    applied(places, channel, "samples", is_killed=is_killed)
    shutil.rmtree(places.bus)
    published(2, 0)
    if is_stopped:
        opened = SupervisedQuery("samples", QUERIES["samples"], JobSettings(listen=""), places, print)
        Reporter([opened], places).report()

    applied(places, channel, "samples")

    (row,) = rows(places.tables, "broker_metrics")
    assert row["metric_value"] == 2
