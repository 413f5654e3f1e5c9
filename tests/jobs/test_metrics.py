"""The job's own pages: names and help as agreed, and what they tell while a real Spark runs."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from streaming.errors import ConfigurationError, TableRefused
from streaming.jobs.application import Application
from streaming.jobs.queries import BatchResult, JobLocations
from streaming.settings import JobSettings
from tests.jobs.test_isolation import eventually, publish, running
from tests.plugins.local_http import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def application(places: JobLocations, address: str) -> Iterator[Application]:
    made = Application(JobSettings(listen=address), places, print)
    yield made
    made._close_server()


def ask(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def samples(address: str) -> dict[str, float]:
    lines = ask(address, "/metrics")[1].splitlines()
    split = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {series: float(value) for series, value in split}


def test_names_and_help_are_as_agreed(
    places: JobLocations, application: Application, address: str, golden: Callable[[str, str], None]
) -> None:
    publish(places.bus)
    application.reporter.report()
    applied = BatchResult(
        observations=1, changes=1, refused=1, version=1, seconds=0.1, stages={"fold": 0.1}, reasons={"json": 1}
    )
    application.metrics.applied("samples", applied, {"toArrow": 0.1})
    application.metrics.progressed(report("samples", 1, 10.0, addBatch=100, triggerExecution=120))
    told = ask(address, "/metrics")[1]
    golden("job_metrics.txt", "\n".join(line for line in told.splitlines() if line.startswith("#")) + "\n")


def test_a_query_that_is_down_is_unhealthy_and_told_in_a_sentence(application: Application, address: str) -> None:
    assert ask(address, "/-/healthy")[0] == 200, "it starts"
    assert ask(address, "/-/ready")[0] == 503
    application.queries[1]._fail(TableRefused("another job writes it"))
    code, told = ask(address, "/-/healthy")
    assert (code, "the query samples is down: another job writes it" in told.splitlines()) == (503, True)
    assert samples(address)['isrwatch_job_query_lost{query="samples"}'] == 1


def test_an_address_that_is_taken_is_refused_before_spark_starts(places: JobLocations) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=f"cannot listen on {address}: .* with --listen"):
            Application(JobSettings(listen=address), places, print)


def test_the_front_page_leads_to_the_others_and_no_further(application: Application, address: str) -> None:
    application.queries[1]._fail(TableRefused("another job writes it"))
    assert 'href="/metrics"' in ask(address, "/")[1]
    assert ask(address, "/healthz")[1] == ask(address, "/-/healthy")[1]
    assert ask(address, "/nothing")[0] == 404


def report(query: str, rows: int, rate: float, **milliseconds: int) -> dict[str, Any]:
    """Give what is used of a report of Spark."""
    return {"name": query, "numInputRows": rows, "processedRowsPerSecond": rate, "durationMs": milliseconds}


def test_what_spark_reports_of_a_batch_is_taken_over(application: Application, address: str) -> None:
    application.metrics.progressed(report("samples", 5, 125.0, triggerExecution=40, addBatch=30))
    found = samples(address)
    assert found['isrwatch_job_rows_total{query="samples"}'] == 5
    assert found['isrwatch_job_processed_rows_per_second{query="samples"}'] == 125
    assert found['isrwatch_job_batch_duration_seconds_sum{query="samples"}'] == 0.04
    assert found['isrwatch_job_batch_stage_seconds_sum{query="samples",stage="addBatch"}'] == 0.03


@pytest.mark.spark
def test_real_spark_tells_every_stage_of_a_batch(
    places: JobLocations, application: Application, address: str, spark: SparkSession
) -> None:
    publish(places.bus)
    count = "isrwatch_job_batch_stage_seconds_count"
    wanted = [f'{count}{{query="replication",stage="{stage}"}}' for stage in (
        "latestOffset", "getBatch", "queryPlanning", "addBatch", "walCommit", "commitOffsets",
        "toArrow", "decode", "fold", "commit",
    )]  # fmt: skip

    def told() -> Any:
        found = samples(address)
        return found if all(found.get(series, 0) > 0 for series in wanted) else None

    written: list[str] = []
    application.log_batches(written.append)
    with running(application, spark):
        found = eventually(told)
        assert ask(address, "/-/healthy") == (200, "every query runs\n")
        eventually(lambda: application.progress().count("observations") == 3)

    assert found['isrwatch_job_rows_total{query="replication"}'] > 20
    assert found['isrwatch_job_table_version{table="partition_changes"}'] >= 1
    assert found['isrwatch_job_query_up{query="samples"}'] == 1
    first = {re.search(r"query=(\w+)", row)[1]: row for row in reversed(written)}  # type: ignore[index]
    assert set(first) == {"replication", "samples", "incidents"}
    assert re.fullmatch(
        r"batch at=\S+Z query=replication batch=0 batches=1 clusters=orders-eu rows=\d+ changes=\d+ seconds=\S+ "
        "version=1",
        first["replication"],
    ), written
