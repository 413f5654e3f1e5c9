"""A query that fails, and runs again, in lines for the operator of the job; without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import PySparkException

from streaming.jobs import supervised
from streaming.jobs.queries import JobLocations, OpenedQuery, QueryDefinition
from streaming.jobs.supervised import SupervisedQuery
from streaming.settings import JobSettings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SPARK = cast("SparkSession", None)


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
    return SupervisedQuery("metrics", definition, JobSettings(), places, said.append)


def test_a_failure_and_its_end_are_one_line_each_and_the_rest_is_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    failed = "the query metrics failed: Python worker failed to connect back; it starts again in 0 s"
    file = tmp_path / "metrics-failure.txt"
    assert said == [failed, f"where that came from is in {file}", failed, "the query metrics runs again"]
    assert "JVM stacktrace:" in file.read_text()
    assert (query.restarts, query.last_error) == (2, "Python worker failed to connect back")


def test_without_a_file_for_it_the_trace_is_in_the_log(tmp_path: Path) -> None:
    said: list[str] = []

    def stream(*_: object) -> DataFrame:
        raise PySparkException("no")

    query_of(stream, tmp_path / "missing", said).start(SPARK)

    assert said[0] == "the query metrics failed: no; it starts again in 1 s"
    assert said[1].startswith("Traceback (most recent call last):")
