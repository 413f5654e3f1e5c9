from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.contracts.observations import Channel
from streaming.errors import ConfigurationError
from streaming.jobs.application import QUERIES, Application
from streaming.jobs.queries import JobLocations
from streaming.jobs.supervised import SupervisedQuery
from streaming.settings import JobSettings
from tests.end_to_end.stories import long_story
from tests.jobs.driver.test_batch import published

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "metadata_log:a"


@pytest.fixture
def places(tmp_path: Path) -> JobLocations:
    return JobLocations(bus=tmp_path / "bus", tables=tmp_path / "tables", checkpoint=tmp_path / "checkpoint")


def test_only_the_wanted_queries_are_opened(places: JobLocations) -> None:
    def names(*queries: str) -> list[str]:
        return [query.name for query in Application(JobSettings(listen="", queries=queries), places, print).queries]

    assert names("offsets", "replication") == ["replication", "offsets"]
    assert names() == list(QUERIES)


def test_a_query_that_does_not_exist_is_refused_by_name(places: JobLocations) -> None:
    with pytest.raises(ConfigurationError, match="there is no query 'dreams'; choose of replication, offsets"):
        Application(JobSettings(listen="", queries=("dreams",)), places, print)


@pytest.mark.parametrize("name", ["tables", "bus", "checkpoint"])
def test_a_file_where_a_folder_belongs_is_refused_by_the_name_of_its_key(places: JobLocations, name: str) -> None:
    (places.tables.parent / name).touch()

    with pytest.raises(ConfigurationError, match=rf"point (job\.)?{name}(\.directory)? \(--{name}\) at"):
        Application(JobSettings(listen=""), places, print)


def test_a_requested_stop_is_said_at_once(places: JobLocations) -> None:
    application = Application(JobSettings(listen=""), places, print)
    application.reporter.start()
    lines: list[str] = []

    application.request_stop()
    application.wait(lines.append)

    assert lines == ["stopping: each query ends its batch first"]


def test_segments_are_deleted_one_look_after_they_were_applied(places: JobLocations) -> None:
    story = long_story(seed=1, steps=200)
    with closing(DirectoryPublisher(places.bus, segment_bytes=4_000)) as publisher:
        publisher.publish(story[:100])
        publisher.publish(story[100:])
    bus = DirectoryReader(places.bus)
    (end,) = bus.end_positions(Channel.REPLICATION).values()
    query = SupervisedQuery("replication", QUERIES["replication"], JobSettings(listen=""), places, print)
    rows = published(story, start=end - len(story))
    log_ids = pa.array([bus.segments(Channel.REPLICATION, SOURCE)[0].log_id] * len(rows), pa.int64())
    query.batch.apply(rows.set_column(rows.column_names.index("log_id"), "log_id", log_ids))
    first = bus.start_positions(Channel.REPLICATION)

    query.delete_applied(bus)
    assert bus.start_positions(Channel.REPLICATION) == first
    query.delete_applied(bus)
    assert bus.start_positions(Channel.REPLICATION)[SOURCE] > first[SOURCE]
