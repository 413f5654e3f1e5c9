"""Queries beside each other in one application, with real Spark: each for itself, from a pool of its own."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.samples import BrokerMetricObserved
from streaming.errors import IsrwatchError, TableRefused
from streaming.jobs import queries, supervised
from streaming.jobs.application import QUERIES, Application
from streaming.jobs.queries import JobLocations, OpenedQuery
from streaming.settings import JobSettings
from tests.changes.conftest import Story
from tests.end_to_end.stories import long_story
from tests.jobs.failed_starts import failures_of
from tests.jobs.shards.test_batch import offsets_sample, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from streaming.jobs.queries import Batch, BatchResult

pytestmark = pytest.mark.spark


def publish(bus: Path, at: int = 1) -> None:
    """Publish something on each channel."""
    envelope = {**Story("admin:a").envelope(), "collected_at": at}
    metric = BrokerMetricObserved(**envelope, broker=1, metric="kafka_server_x", metric_value=float(at))
    with closing(DirectoryPublisher(bus, segment_bytes=100_000)) as publisher:
        publisher.publish([*long_story(seed=1, steps=20), offsets_sample(at), metric])


@contextmanager
def running(application: Application, spark: SparkSession) -> Iterator[list[IsrwatchError]]:
    """Run an application in the background; what it ended with is in the list."""
    ended: list[IsrwatchError] = []

    def wait() -> None:
        try:
            application.wait()
        except IsrwatchError as error:
            ended.append(error)

    application.start(spark)
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield ended
    finally:
        application.request_stop()
        thread.join()


def eventually(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 90
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def samples(places: JobLocations) -> list[int]:
    return [row["high_watermark"] for row in rows(places.tables, "replica_offsets")]


def pools_used(spark: SparkSession) -> set[str]:
    """Name the pools that stages ran in, as Spark's own status store tells."""
    context: Any = spark.sparkContext
    no_statuses, no_quantiles = context._jvm.java.util.ArrayList(), context._gateway.new_array(context._jvm.double, 0)
    stages = context._jsc.sc().statusStore().stageList(no_statuses, False, False, no_quantiles, no_statuses)
    return {stages.apply(number).schedulingPool() for number in range(stages.size())}


@pytest.mark.long
def test_a_query_that_fails_starts_again_and_leaves_the_others_alone_each_in_a_pool_of_its_name(
    spark: SparkSession, places: JobLocations, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter(["no space left", "no space left", "still no space left"])

    class Flaky:
        def __init__(self, batch: Batch) -> None:
            self.batch = batch

        def __getattr__(self, name: str) -> Any:
            return getattr(self.batch, name)

        def apply(self, rows: pa.Table) -> BatchResult:
            if reason := next(failures, None):
                raise OSError(reason)
            return self.batch.apply(rows)

    plain = QUERIES["samples"]

    def open_flaky(places: JobLocations, settings: JobSettings) -> OpenedQuery:
        opened = plain.open(places, settings)
        return replace(opened, batch=Flaky(opened.batch))

    flaky = replace(plain, open=open_flaky)
    monkeypatch.setitem(QUERIES, "samples", flaky)
    monkeypatch.setattr(supervised, "FIRST_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(supervised, "RUNS_AGAIN_AFTER_SECONDS", 0.5)
    logged: list[str] = []
    application = Application(JobSettings(listen=""), places, logged.append)
    replication, of_samples, *_ = application.queries
    file = places.checkpoint / "samples-failure.txt"
    with running(application, spark) as ended:
        publish(places.bus)
        eventually(lambda: "still no space left" in failures_of("samples", logged).reasons)
        eventually(lambda: file.read_text().endswith("OSError: still no space left\n"))
        eventually(lambda: samples(places) == [1])
        eventually(lambda: rows(places.tables, "partition_state"))
        eventually(lambda: logged[-1] == "the query samples runs again")

    assert ended == []
    assert rows(places.tables, "broker_metrics")
    assert spark.sparkContext.getConf().get("spark.scheduler.mode") == "FAIR"
    assert {"replication", "samples"} <= pools_used(spark)
    assert failures_of("replication", logged) == ([], replication.restarts), logged
    reasons, late = failures_of("samples", logged)
    assert reasons == ["no space left", "no space left", "still no space left"]
    assert of_samples.restarts == 3 + late
    pauses = [line.rpartition(" in ")[2] for line in logged if line.startswith("the query samples failed")]
    assert pauses == ["0.2 s", "0.4 s", "0.8 s", "1.6 s", "3.2 s", "6.4 s"][: 3 + late]
    assert logged.count(f"where that came from is in {file}") == 2 + bool(late)


@pytest.mark.long
def test_the_end_waits_for_a_batch_that_spark_has_given_up(
    spark: SparkSession, places: JobLocations, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = threading.Event(), threading.Event()

    class Slow:
        def apply(self, _rows: pa.Table) -> BatchResult:
            began.set()
            time.sleep(1.6)  # longer than the job and Spark wait, which is a second each and no time
            ended.set()
            raise OSError("the store is slow")

    monkeypatch.setitem(QUERIES, "samples", replace(QUERIES["samples"], open=lambda *_: OpenedQuery(batch=Slow())))
    monkeypatch.setattr(queries, "SECONDS_TO_FINISH_A_BATCH", 1.0)
    spark.conf.set("spark.sql.streaming.stopTimeout", "1ms")
    application = Application(JobSettings(listen="", queries=("samples",)), places, print)
    publish(places.bus)
    application.start(spark)
    assert began.wait(60)
    application.request_stop()
    try:
        with suppress(Exception):  # Spark has not stopped it in time
            application.wait()
    finally:
        spark.conf.unset("spark.sql.streaming.stopTimeout")
    assert ended.is_set()


@pytest.mark.long
def test_a_query_whose_tables_another_job_writes_stops_for_good_and_the_end_says_so(
    spark: SparkSession, places: JobLocations, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loser:
        def apply(self, _rows: pa.Table) -> BatchResult:
            raise TableRefused("another job writes replica_offsets")

    lost = replace(QUERIES["samples"], open=lambda *_: OpenedQuery(batch=Loser()))
    monkeypatch.setitem(QUERIES, "samples", lost)
    application = Application(JobSettings(listen="", queries=("samples", "replication")), places, print)
    with running(application, spark) as ended:
        publish(places.bus)
        eventually(lambda: application.queries[1].is_lost)
        eventually(lambda: rows(places.tables, "partition_changes"))
        assert ended == []

    assert [str(error) for error in ended] == ["the query samples was stopped by: another job writes replica_offsets"]
