"""What a demo has shown: counts from the tables, latencies as seen, and what to try next."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from rich.text import Text

from exporters.terminal import summary
from streaming.contracts.columns import WHY
from streaming.contracts.tables import REPLICATION_EVENTS
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from rich.console import Console

    from streaming.commands.demo_live import Watched

EVENT, CAUSE = "event", WHY[0].name
PARTITIONS_METRIC = "kafka_replication_cluster_partitions"


class NothingFlowed(IsrwatchError):
    """The demo ran, but what should have reached the other end has not."""


def counted_events(tables: Path) -> Counter[tuple[str, str]]:
    """Count the recorded events by kind and cause; a kind without a cause has an empty one.

    Through DataFusion: reading by pyarrow's own threads aborts the interpreter at its end now and then.
    """
    engine = QueryBuilder().register("events", DeltaTable(tables / REPLICATION_EVENTS.name))
    query = f"SELECT {EVENT}, coalesce({CAUSE}, ''), count(*) FROM events GROUP BY 1, 2"  # noqa: S608 - our own columns
    rows = pa.table(engine.execute(query)).columns
    return Counter({(event, cause): count for event, cause, count in zip(*(r.to_pylist() for r in rows), strict=True)})


def missing(watched: Watched, events: int, metrics: str) -> str | None:
    """Say what did not reach the other end; None if everything did.

    A cluster at rest has no events, but its heartbeats must move the watermark.
    """
    if not watched.partitions():
        return "no partition is known"
    if not events and not watched.moved():
        return "no event was recorded and no heartbeat arrived"
    if f"\n{PARTITIONS_METRIC}{{" not in metrics:
        return "/metrics tells nothing of the cluster"
    return None


def print_summary(console: Console, watched: Watched, tables: Path, metrics_url: str) -> None:
    """Tell what was recorded, how fast, where it is, and what to do with it."""
    counts = counted_events(tables)
    console.print()
    partitions = watched.partitions()
    console.print(Text(f"{counts.total():,} events recorded on {partitions:,} partitions", style="bold"))
    console.print(summary(counts))
    if latency := _latency(watched.latencies):
        console.print(Text(f"\nfrom happening to visible here: {latency}"), soft_wrap=True)
    console.print(Text(f"tables: {tables}"), soft_wrap=True)
    # In a venv that is not activated only the whole path is found.
    command = "isrwatch" if shutil.which("isrwatch") else os.path.relpath(Path(sys.executable).with_name("isrwatch"))
    console.print("\nwhat next:")
    for purpose, arguments in {
        f"serve them again at {metrics_url}": f"export --tables {tables}",
        "choose what breaks": "demo --help",
        "watch your own cluster": "collect --help",
    }.items():
        console.print(Text.assemble(f"  {command} {arguments}", (f"   # {purpose}", "dim")), soft_wrap=True)


def _latency(seconds: list[float]) -> str:
    """Give median, 95th percentile and maximum of what was measured, once there is enough to speak of."""
    enough = 2
    if len(seconds) < enough:
        return ""
    p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
    return f"median {statistics.median(seconds):.2f} s, p95 {p95:.2f} s, worst {max(seconds):.2f} s"
