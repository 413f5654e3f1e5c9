"""What a demo says at its end, and when it says that nothing has flowed."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from exporters.snapshot import Cluster, ClusterSnapshot, Partition, ReplicationSnapshot, Topic
from streaming.commands.demo_live import Watched
from streaming.commands.demo_summary import counted_events, missing, print_summary

METRICS = '# HELP x y\nkafka_replication_cluster_partitions{cluster="kafka"} 3\n'


def watched(*watermarks: int, partitions: int) -> Watched:
    topic = Topic("t", "orders", {number: Partition("t", "orders", number) for number in range(partitions)})
    snapshots = [
        ReplicationSnapshot(
            clusters={
                "c": ClusterSnapshot(cluster=Cluster("c", "kafka", authority_watermark=moment), topics={"t": topic})
            }
        )
        for moment in watermarks
    ]
    seen = Watched(snapshots[0])
    for snapshot in snapshots:
        seen.look(snapshot, 0)
    return seen


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    rows = {"event": ["isr_shrink", "isr_shrink", "fenced"], "cause": ["fenced", "fenced", None]}
    write_deltalake(tmp_path / "replication_events", pa.table(rows))
    return tmp_path


@pytest.mark.parametrize(
    ("seen", "events", "metrics", "lack"),
    [
        (watched(1, 1, partitions=3), 5, METRICS, None),
        (watched(1, 2, partitions=3), 0, METRICS, None),
        (watched(1, 1, partitions=3), 0, METRICS, "no event was recorded and no heartbeat arrived"),
        (watched(1, 2, partitions=0), 5, METRICS, "no partition is known"),
        (
            watched(1, 2, partitions=3),
            5,
            '\nkafka_replication_build_info{version="1"} 1\n',
            "/metrics tells nothing of the cluster",
        ),
        (watched(1, 2, partitions=3), 5, "", "/metrics tells nothing of the cluster"),
    ],
)
def test_a_demo_has_shown_something_when_it_reached_the_other_end(
    seen: Watched, events: int, metrics: str, lack: str | None
) -> None:
    assert missing(seen, events, metrics) == lack


def test_events_are_counted_by_kind_and_cause(tables: Path) -> None:
    assert counted_events(tables) == {("isr_shrink", "fenced"): 2, ("fenced", ""): 1}


def test_the_summary_tells_what_how_fast_where_and_what_next(tables: Path) -> None:
    seen = watched(1, 2, partitions=3)
    seen.latencies.extend([0.1] * 18 + [0.5, 2.0])
    output = io.StringIO()
    print_summary(Console(file=output, width=60), seen, tables, "http://127.0.0.1:9308/metrics")
    told = output.getvalue()
    assert "3 events recorded on 3 partitions" in told
    assert "median 0.10 s, p95 0.57 s, worst 2.00 s" in told
    assert f"tables: {tables}\n" in told
    assert re.search(rf"isrwatch export --tables {tables}   # serve them again at http://127.0.0.1:9308/metrics", told)


def test_without_measurements_no_latency_is_told(tables: Path) -> None:
    output = io.StringIO()
    print_summary(Console(file=output, width=60), watched(1, partitions=3), tables, "http://127.0.0.1:9308/metrics")
    assert "median" not in output.getvalue()
