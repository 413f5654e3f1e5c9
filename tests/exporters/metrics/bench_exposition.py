"""Time to render an exposition: ``python -m tests.exporters.metrics.bench_exposition [PARTITIONS]``. No limits."""

from __future__ import annotations

import resource
import sys
import time
from typing import TYPE_CHECKING

from exporters.metrics.compression import gzipped, plain
from exporters.metrics.exposition import Exposition, ScrapeRequest
from exporters.read_model.draft import ClusterDraft
from exporters.read_model.refresher import ExporterHealth
from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import BrokerState, ClusterState, PartitionState

if TYPE_CHECKING:
    from collections.abc import Iterable

BROKERS = 6
PARTITIONS_PER_TOPIC = 10
SECOND = 1_000_000
NOW = 1_790_000_000 * SECOND


def partition(number: int, *, is_out: bool) -> PartitionState:
    """Make one partition of three replicas, the last of them out of sync or not."""
    replicas = tuple((number + place) % BROKERS + 1 for place in range(3))
    name = f"topic-{number // PARTITIONS_PER_TOPIC:05}"
    key = (f"id-of-{name}", name, number % PARTITIONS_PER_TOPIC)
    healthy = PartitionState("id", "bench", *key, replicas, replicas, leader=replicas[0])
    healthy = healthy._replace(leader_epoch=3, min_isr_effective=2, is_under_min_isr=False, is_at_min_isr=is_out)
    if not is_out:
        return healthy
    return healthy._replace(isr=replicas[:2], is_under_replicated=True, under_replicated_since=NOW - SECOND)


def next_snapshot(last: ClusterSnapshot, partitions: Iterable[PartitionState], watermark: int) -> ClusterSnapshot:
    """Apply some partitions and a heartbeat."""
    draft = ClusterDraft(last)
    for each in partitions:
        draft.put_partition(each)
    draft.put_cluster(last.cluster._replace(authority_watermark=watermark))
    return draft.finish()


def main(count: int) -> None:
    """Render one cluster: cold, unchanged, after changes, after a heartbeat."""
    cluster = ClusterSnapshot(
        cluster=ClusterState("id", "bench", SourceKind.METADATA_LOG),
        brokers={each: BrokerState("id", "bench", each) for each in range(1, BROKERS + 1)},
    )
    exposition = Exposition(60.0)
    stories = (
        ("cold", [partition(number, is_out=False) for number in range(count)], NOW),
        ("again", [], NOW),
        ("1 % changed", [partition(number, is_out=True) for number in range(0, count, 100)], NOW),
        ("all changed", [partition(number, is_out=True) for number in range(count)], NOW),
        ("heartbeat, all under-replicated", [], NOW + SECOND),
    )
    for story, partitions, watermark in stories:
        began = time.perf_counter()
        cluster = next_snapshot(cluster, partitions, watermark)
        applied = time.perf_counter()
        snapshot = ReplicationSnapshot(clusters={"id": cluster}, version=1)
        blocks = exposition.render(snapshot, ExporterHealth("bench", 1, 0.0, 0), watermark, ScrapeRequest())
        rendered = time.perf_counter()
        body = plain(blocks)
        joined = time.perf_counter()
        zipped = gzipped(blocks)
        ended = time.perf_counter()
        times = f"apply {applied - began:.3f} s, render {rendered - applied:.3f} s, join {joined - rendered:.3f} s"
        sizes = f"{sum(block.series for block in blocks):,} series, {len(body):,} bytes, {len(zipped):,} zipped"
        print(f"{story}: {times}, gzip {ended - joined:.3f} s; {sizes}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
