"""The summary of a demo, and when it reports that no data got through."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from exporters.demo.live import DemoProgress
from exporters.demo.summary import counted_events, event_table, missing, print_summary
from streaming.terminal import Terminal
from tests.exporters.demo.test_live import snapshot

METRICS = '# HELP x y\nkafka_replication_cluster_partitions{cluster="kafka"} 3\n'


def progress_of(*watermarks: int, partitions: int) -> DemoProgress:
    snapshots = [snapshot(watermark=moment, partitions=partitions) for moment in watermarks]
    progress = DemoProgress(snapshots[0])
    for each in snapshots:
        progress.update(each, 0)
    return progress


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    rows = {"event": ["isr_shrink", "isr_shrink", "fenced"], "cause": ["fenced", "fenced", None]}
    write_deltalake(tmp_path / "replication_events", pa.table(rows))
    return tmp_path


@pytest.mark.parametrize(
    ("progress", "events", "metrics", "lack"),
    [
        (progress_of(1, 1, partitions=3), 5, METRICS, None),
        (progress_of(1, 2, partitions=3), 0, METRICS, None),
        (progress_of(1, 1, partitions=3), 0, METRICS, "no events were recorded and no heartbeat arrived"),
        (progress_of(1, 2, partitions=0), 5, METRICS, "no partitions were observed"),
        *((progress_of(1, 2, partitions=3), 5, each, "/metrics does not contain the cluster")
          for each in ("", '\nkafka_replication_build_info{version="1"} 1\n')),
    ],
)  # fmt: skip
def test_a_demo_is_complete_when_data_got_through_the_pipeline(
    progress: DemoProgress, events: int, metrics: str, lack: str | None
) -> None:
    assert missing(progress, events, metrics) == lack


def test_events_are_counted_by_kind_and_cause(tables: Path) -> None:
    assert counted_events(tables) == {("isr_shrink", "fenced"): 2, ("fenced", ""): 1}


def test_the_summary_has_counts_latency_folder_and_next_steps(tables: Path) -> None:
    progress = progress_of(1, 2, partitions=3)
    progress.latencies.extend([0.1] * 18 + [0.5, 2.0])
    output = io.StringIO()
    print_summary(Terminal(file=output, width=60), progress, tables, "http://127.0.0.1:9308/")
    text = output.getvalue()
    assert "3 events recorded on 3 partitions" in text
    assert "median 0.10 s, p95 0.57 s, max 2.00 s" in text
    assert f"tables: {tables}\n" in text
    assert re.search(rf"isrwatch incidents --all --tables {tables}   # what went wrong", text)
    assert re.search(rf"isrwatch brokers --tables {tables}   # what each broker holds", text)
    assert re.search(rf"isrwatch export --tables {tables}   # serve the pages again at http://127.0.0.1:9308/\n", text)


def test_without_measurements_no_latency_is_printed_and_the_next_step_serves_at_the_same_port(tables: Path) -> None:
    output = io.StringIO()
    print_summary(Terminal(file=output), progress_of(1, partitions=3), tables, "http://127.0.0.1:46749/")
    assert f"export --tables {tables} --web.listen-address 127.0.0.1:46749   # serve" in output.getvalue()
    assert "median" not in output.getvalue()


def test_the_table_of_events_counts_by_event_and_cause_largest_first() -> None:
    counts = {("offline", "fenced"): 2, ("isr_shrink", "lag"): 1000, ("isr_shrink", "fenced"): 2}
    output = io.StringIO()
    Terminal(file=output, width=80).print(event_table(counts))
    assert [line.split() for line in output.getvalue().splitlines()] == [
        ["event", "cause", "count"],
        ["isr_shrink", "lag", "1,000"],
        ["isr_shrink", "fenced", "2"],
        ["offline", "fenced", "2"],
    ]
