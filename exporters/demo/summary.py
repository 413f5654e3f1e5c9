"""The summary of a demo: event counts from the tables, measured latencies, and what to try next."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from rich.table import Table
from rich.text import Text

from exporters.answers.event_text import style_of
from exporters.demo.location import PORT
from exporters.running.command import print_steps
from streaming.contracts.columns import WHY
from streaming.contracts.tables import REPLICATION_EVENTS
from streaming.errors import IsrwatchError
from streaming.terminal import print_wrapped

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from exporters.demo.live import DemoProgress
    from streaming.terminal import Terminal

EVENT, CAUSE = "event", WHY[0].name
PARTITIONS_METRIC = "kafka_replication_cluster_partitions"


class PipelineIncomplete(IsrwatchError):
    """The demo ran, but data did not get through the whole pipeline."""


def counted_events(tables: Path) -> Counter[tuple[str, str]]:
    """Count the recorded events by kind and cause; an event without a cause has the cause "".

    Through DataFusion: pyarrow's own reader threads sometimes abort the interpreter at its exit.
    """
    engine = QueryBuilder().register("events", DeltaTable(tables / REPLICATION_EVENTS.name))
    query = f"SELECT {EVENT}, coalesce({CAUSE}, ''), count(*) FROM events GROUP BY 1, 2"  # noqa: S608 - our own columns
    rows = pa.table(engine.execute(query)).columns
    return Counter({(event, cause): count for event, cause, count in zip(*(r.to_pylist() for r in rows), strict=True)})


def missing(progress: DemoProgress, events: int, metrics: str) -> str | None:
    """Describe what did not get through the pipeline; None if everything did.

    A cluster without changes has no events, but its heartbeats must advance the watermark.
    """
    if not progress.partitions():
        return "no partitions were observed"
    if not events and not progress.moved():
        return "no events were recorded and no heartbeat arrived"
    if f"\n{PARTITIONS_METRIC}{{" not in metrics:
        return "/metrics does not contain the cluster"
    return None


def print_summary(console: Terminal, progress: DemoProgress, tables: Path, page_url: str) -> None:
    """Print the recorded events, their latency, the folder of the tables, and commands to try next."""
    counts = counted_events(tables)
    console.print()
    partitions = progress.partitions()
    console.print(Text(f"{counts.total():,} events recorded on {partitions:,} partitions", style="bold"))
    console.print(event_table(counts))
    if latency := _latency(progress.latencies):
        console.print()
        print_wrapped(console, f"latency from event to live view: {latency}")
    console.print(Text(f"tables: {tables}"), soft_wrap=True)
    console.print("\nNext steps:")
    address = urlsplit(page_url)
    listen = "" if address.port == PORT else f" --web.listen-address {address.netloc}"
    steps = {
        "what went wrong, who caused it, what to do first": f"incidents --all --tables {tables}",
        "what each broker holds, and whether it may stop": f"brokers --tables {tables}",
        f"serve the pages again at {page_url}": f"export --tables {tables}{listen}",
        "choose another scenario": "demo --help",
        "monitor your own cluster": "run --help",
    }
    print_steps(console, steps)


def event_table(counts: Mapping[tuple[str, str], int]) -> Table:
    """Render the number of events by kind and cause."""
    table = Table("event", "cause", "count", box=None, header_style="dim", pad_edge=False)
    table.columns[2].justify = "right"
    for (event, cause), count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        table.add_row(Text(event, style=style_of(event)), Text(cause), f"{count:,}")
    return table


def _latency(seconds: list[float]) -> str:
    """Format median, 95th percentile and maximum of the latencies; "" for fewer than two."""
    enough = 2
    if len(seconds) < enough:
        return ""
    p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
    return f"median {statistics.median(seconds):.2f} s, p95 {p95:.2f} s, max {max(seconds):.2f} s"
