"""What the job tells of its sources: positions, lag, and the health of the query that applies them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pyarrow as pa

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.contracts.observations import Channel, Observation
from streaming.delta.log.table_log import newest_version
from streaming.errors import TableRefused
from streaming.jobs.application import QUERIES
from streaming.jobs.metrics import Reporter
from streaming.jobs.queries import JobLocations
from streaming.jobs.supervised import SupervisedQuery
from streaming.settings import JobSettings
from tests.end_to_end.stories import long_story
from tests.jobs.shards.test_batch import offsets_sample, rows
from tests.plugins.logs import rows_of_log

LOG = "metadata_log:a"


def publish(places: JobLocations, story: list[Observation]) -> None:
    with closing(DirectoryPublisher(places.bus, segment_bytes=2_000)) as publisher:
        publisher.publish(story)


def from_bus(places: JobLocations, channel: Channel, source: str, to: int | None = None) -> pa.Table:
    """Read a log as Spark hands it to a batch."""
    return pa.Table.from_batches(rows_of_log(DirectoryReader(places.bus), channel, source, end=to))


def query(name: str, places: JobLocations) -> SupervisedQuery:
    return SupervisedQuery(name, QUERIES[name], JobSettings(), places, print)


def told(places: JobLocations) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["channel"], row["source"]): row for row in rows(places.tables, "source_progress")}


def test_a_channel_without_sources_is_written_once(places: JobLocations) -> None:
    publish(places, [offsets_sample(1)])
    samples, replication = query("samples", places), query("replication", places)
    samples.batch.apply(from_bus(places, Channel.SAMPLES, "admin:a"))
    reporter = Reporter([samples, replication], places)
    reporter.report()
    before = newest_version(places.tables / "source_progress")
    reporter.report()
    assert newest_version(places.tables / "source_progress") == before + 1
    assert told(places).keys() == {("samples", "admin:a")}


def test_what_is_not_applied_yet_is_told_in_bytes_and_nothing_once_it_is(places: JobLocations) -> None:
    publish(places, long_story(seed=1, steps=40))
    replication = query("replication", places)
    whole = from_bus(places, Channel.REPLICATION, LOG)
    end = DirectoryReader(places.bus).end_positions(Channel.REPLICATION)[LOG]
    reporter = Reporter([replication], places)

    reporter.report()
    assert reporter.lags[Channel.REPLICATION, LOG].behind_bytes == end
    half = whole.num_rows // 2
    replication.batch.apply(whole.slice(0, half))
    reporter.report()
    assert reporter.lags[Channel.REPLICATION, LOG].behind_bytes == end - whole["position"][half].as_py()
    replication.batch.apply(whole)
    reporter.report()

    row = told(places)["replication", LOG]
    assert (row["bus_end"], row["behind_bytes"], row["is_query_up"], row["restarts"]) == (end, 0, False, 0)
    assert row["as_of_version"] == replication.progress.sources()[1]
    assert (row["position"], row["last_error"]) == (whole["position"][-1].as_py(), None)


def test_sources_of_samples_are_told_too_and_go_on_after_a_start(places: JobLocations) -> None:
    publish(places, [offsets_sample(7)])
    with closing(DirectoryPublisher(places.bus, segment_bytes=2_000)) as publisher:
        publisher.publish_raw(Channel.SAMPLES, "admin:a", b"?")
    samples = query("samples", places)
    samples.batch.apply(from_bus(places, Channel.SAMPLES, "admin:a"))
    Reporter([samples], places).report()
    again = query("samples", places)
    Reporter([again], places).report()
    row = told(places)["samples", "admin:a"]
    assert (row["observed_until"].timestamp() * 1_000_000, row["quarantined"], row["behind_bytes"]) == (7, 1, 0)
    assert (row["cluster"], row["as_of_version"], row["source_kind"]) == ("orders-eu", None, "none")


def test_segments_that_were_deleted_count_as_applied(places: JobLocations) -> None:
    story = long_story(seed=1, steps=40)
    publish(places, story[:30])
    publish(places, story[30:])
    whole = from_bus(places, Channel.REPLICATION, LOG)
    bus = DirectoryReader(places.bus)
    kept = [segment.base for segment in bus.segments(Channel.REPLICATION, LOG)][-1]
    bus.delete_below(Channel.REPLICATION, LOG, kept)
    end = bus.end_positions(Channel.REPLICATION)[LOG]
    oldest = bus.start_positions(Channel.REPLICATION)[LOG]
    assert bus.bytes_behind(Channel.REPLICATION, LOG, whole["position"][0].as_py()) == (end, end - oldest)
    assert bus.bytes_behind(Channel.REPLICATION, LOG, whole["position"][-1].as_py()) == (end, 0)


def test_whoever_lost_a_channel_to_another_job_reports_no_more_on_it(places: JobLocations) -> None:
    publish(places, [offsets_sample(7)])
    samples = query("samples", places)
    samples.batch.apply(from_bus(places, Channel.SAMPLES, "admin:a"))
    samples._fail(TableRefused("another job writes it"))
    Reporter([samples], places).report()
    assert samples.is_lost
    assert told(places) == {}
