"""The job without Spark: its queries, what it hands on to its tables, and how a query that fails is reported."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.commands import job as command
from streaming.contracts.observations import Channel
from streaming.contracts.tables import TABLES
from streaming.delta.log import maintenance
from streaming.delta.log.maintenance import Maintenance, RetentionPolicy
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.jobs import application, supervised
from streaming.jobs.application import QUERIES, Application
from streaming.jobs.metrics import Reporter
from streaming.jobs.queries import JobLocations, OpenedQuery, QueryDefinition
from streaming.jobs.supervised import SupervisedQuery
from streaming.settings import JobSettings
from tests.end_to_end.stories import long_story
from tests.jobs.shards.test_batch import published

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming.delta.log.writer import Writer


SOURCE = "metadata_log:a"


def test_only_the_wanted_queries_are_opened(places: JobLocations) -> None:
    def names(*queries: str) -> list[str]:
        return [query.name for query in Application(JobSettings(listen="", queries=queries), places, print).queries]

    assert names("samples", "replication") == ["replication", "samples"]
    assert names() == list(QUERIES)


def test_a_query_that_does_not_exist_is_refused_by_name(places: JobLocations) -> None:
    with pytest.raises(ConfigurationError, match="no query is named 'dreams'; use replication, samples"):
        Application(JobSettings(listen="", queries=("dreams",)), places, print)


@pytest.mark.parametrize("name", ["tables", "bus", "checkpoint"])
def test_a_file_where_a_folder_belongs_is_refused_by_the_name_of_its_key(places: JobLocations, name: str) -> None:
    (places.tables.parent / name).touch()
    with pytest.raises(ConfigurationError, match=rf"point (job\.)?{name}(\.directory)? \(--{name}\) at"):
        Application(JobSettings(listen=""), places, print)


def test_a_requested_stop_is_said_at_once(places: JobLocations) -> None:
    running = Application(JobSettings(listen=""), places, print)
    running.reporter.start()
    lines: list[str] = []
    running.request_stop()
    running.wait(lines.append)
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


POLICY = RetentionPolicy(days=90, reader_minutes=7.5)


def test_the_job_hands_on_what_the_configuration_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[JobLocations] = []
    monkeypatch.setattr(command, "run_until_stopped", lambda _, places, *__, **___: started.append(places))
    file = tmp_path / "isrwatch.toml"
    file.write_text(f'[tables]\ndirectory = "{tmp_path}"\nhistory = "90d"\n[advanced]\nreader_time = "7.5m"\n')
    command.job(config=file)
    assert [places.retention for places in started] == [POLICY]


def test_every_table_keeps_its_files_as_long_as_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policies: dict[str, set[RetentionPolicy]] = {}
    begin = maintenance.Maintenance.__init__

    def recorded(self: Maintenance, writer: Writer, policy: RetentionPolicy = maintenance.KEEP_ALL) -> None:
        policies.setdefault(writer.path.name, set()).add(policy)
        begin(self, writer, policy)

    monkeypatch.setattr(maintenance.Maintenance, "__init__", recorded)
    places = JobLocations(bus=tmp_path / "bus", tables=tmp_path / "tables", checkpoint=tmp_path / "c", retention=POLICY)
    settings = JobSettings(listen="")

    queries = [SupervisedQuery(name, each, settings, places, print) for name, each in QUERIES.items()]
    policies.pop("source_progress")  # opened to be read; its writer is the reporter
    Reporter(queries, places)

    assert policies == {name: {POLICY} for name in TABLES}


SPARK = cast("SparkSession", None)


def test_a_spark_cluster_without_an_executor_is_said_once_and_is_a_problem_until_there_is_one(
    places: JobLocations, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    at_work = Application(JobSettings(listen=""), places, said.append)
    own, now, waits = at_work.problems(), time.monotonic(), True
    monkeypatch.setattr(application, "waits_for_executors", lambda _: waits)
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def problems_after(seconds: float) -> list[str]:
        nonlocal now
        now += seconds
        at_work.look_for_executors(SPARK)
        return [problem for problem in at_work.problems() if problem not in own]

    assert problems_after(20) == []
    assert problems_after(20) == problems_after(20) == said == [application.NO_EXECUTORS]
    assert at_work.hangs() == [], "a restart would not give it one"
    waits = False
    assert problems_after(0) == []
    waits = True
    assert problems_after(20) == []
    assert len(said) == 1


class Batch:
    def check_ours(self) -> None:
        """Nobody else writes its tables."""


class Run:
    """A run of a query that goes on."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def failure(self) -> None:
        return None

    def stop(self) -> None:
        pass


def query_of(stream: Any, tmp_path: Path, said: list[str]) -> SupervisedQuery:
    definition = QueryDefinition(
        stream=stream, open=lambda *_: OpenedQuery(batch=cast("Any", Batch())), trigger_seconds=lambda _: 0.0
    )
    places = JobLocations(bus=tmp_path / "bus", tables=tmp_path / "tables", checkpoint=tmp_path)
    return SupervisedQuery("samples", definition, JobSettings(), places, said.append)


def test_a_failure_and_its_end_are_a_line_each_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "QueryRun", Run)
    monkeypatch.setattr(supervised, "FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(supervised, "RUNS_AGAIN_AFTER_SECONDS", -1.0)
    failures = ["Python worker failed to connect back.\n\nJVM stacktrace:\n\tat org.apache.spark.Executor"] * 2
    said: list[str] = []

    def stream(*_: object) -> DataFrame:
        if failures:
            raise PySparkException(failures.pop())
        return cast("DataFrame", None)

    query = query_of(stream, tmp_path, said)
    query.start(SPARK)
    for _ in range(4):
        query.check(SPARK)

    failed = "the query samples failed: Python worker failed to connect back; it starts again in 0 s"
    file = tmp_path / "samples-failure.txt"
    assert said == [failed, f"where that came from is in {file}", failed, "the query samples runs again"]
    assert "JVM stacktrace:" in file.read_text()
    assert (query.restarts, query.last_error) == (2, "Python worker failed to connect back")


def test_a_bus_that_does_not_answer_at_the_start_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "QueryRun", Run)
    monkeypatch.setattr(supervised, "FIRST_PAUSE_SECONDS", 0.0)
    said, refusals = list[str](), [ConnectionRefused("the bus at nowhere does not answer")]

    def stream(*_: object) -> DataFrame:
        if refusals:
            raise refusals.pop()
        return cast("DataFrame", None)

    query = query_of(stream, tmp_path, said)
    query.start(SPARK)
    assert said == ["the query samples failed: the bus at nowhere does not answer; it starts again in 0 s"]
    query.check(SPARK)
    assert (query.is_up, query.is_lost) == (True, False)


def test_what_spark_no_longer_does_while_the_job_stops_is_not_said(tmp_path: Path) -> None:
    said, errors = list[str](), [PySparkException("it stops"), ConnectionRefused("no bus")]

    def stream(*_: object) -> DataFrame:
        raise errors.pop(0)

    query = query_of(stream, tmp_path, said)
    query.is_stopping = lambda: True
    query.start(SPARK)
    assert (said, query.is_up, query.unfinished) == ([], False, None)
    query.start(SPARK)
    assert said == ["the query samples failed: no bus; it starts again in 1 s"]


def test_without_a_file_for_it_the_trace_is_in_the_log(tmp_path: Path) -> None:
    said: list[str] = []

    def stream(*_: object) -> DataFrame:
        raise PySparkException("no")

    query_of(stream, tmp_path / "missing", said).start(SPARK)
    assert said[0] == "the query samples failed: no; it starts again in 1 s"
    assert said[1].startswith("Traceback (most recent call last):")
