"""What a snapshot says, as values that can be compared: without the identity of its objects, and without samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot
from streaming.contracts.observations import Channel
from streaming.contracts.tally import COLUMN_OF_STATE
from streaming.delta.state import StateVersions, apply_changes, count_isr_removals
from tests.plugins.pipeline import rows_of


def meaning(snapshot: ReplicationSnapshot) -> dict[str, dict[str, Any]]:
    """Give everything that the changes make of each cluster, by its id."""
    return {cluster_id: _meaning(cluster) for cluster_id, cluster in snapshot.clusters.items()}


def _meaning(cluster: ClusterSnapshot) -> dict[str, Any]:
    return {
        "cluster": cluster.cluster,
        "topics": {topic_id: (topic.topic, dict(topic.partitions)) for topic_id, topic in cluster.topics.items()},
        "tombstones": dict(cluster.tombstones),
        "brokers": dict(cluster.brokers),
        "totals": cluster.totals,
        "departures": {broker: dict(causes) for broker, causes in (cluster.departures or {}).items()},
        "counts": asdict(cluster.counts),
        "sources": {key: source for key, source in cluster.sources.items() if key[0] == Channel.REPLICATION},
    }


def compare_with_tables(snapshot: ReplicationSnapshot, tables: Path) -> None:
    """Compare what the exporter counts with what the job has written of every cluster and broker."""
    clusters = snapshot.clusters
    written = {row["cluster_id"]: row for row in rows_of(tables, "cluster_state")}
    brokers = rows_of(tables, "broker_state")
    assert set(written) == set(clusters)
    for cluster_id, cluster in clusters.items():
        row = written[cluster_id]
        assert {name: row[name] for name in cluster.totals._fields} == cluster.totals._asdict()
        assert row["topics"] == len(cluster.topics)
        counts = {state: row[column] for state, column in COLUMN_OF_STATE.items()}
        unknown = {state for state, count in counts.items() if count is None}
        assert unknown <= {"under_min_isr", "at_min_isr"}
        assert counts == cluster.counts.states | dict.fromkeys(unknown)
        of_cluster = [each for each in brokers if each["cluster_id"] == cluster_id]
        assert dict(_brokers_of(cluster)) == {each["broker"]: _counts_of(each) for each in of_cluster}


def _brokers_of(cluster: ClusterSnapshot) -> Iterator[tuple[int, Any]]:
    counts = cluster.counts
    for number in cluster.brokers:
        shown = (counts.led.get(number, 0), counts.hosted.get(number, 0), counts.in_sync.get(number, 0))
        yield number, (*shown, dict(cluster.departures.get(number, {})))


def _counts_of(row: dict[str, Any]) -> tuple[Any, ...]:
    removals = {each["cause"]: each["departures"] for each in row["isr_departures"] or ()}
    return row["led_partitions"], row["hosted_partitions"], row["in_sync_partitions"], removals


def folded(rows: pa.Table, at: int) -> dict[str, dict[str, Any]]:
    """Apply the changes that had occurred by a moment, in their order; that a source lives is none."""
    draft = SnapshotDraft(ReplicationSnapshot())
    had_occurred = pc.less_equal(rows["occurred_not_after"].cast(pa.int64()), at)
    before = rows.filter(pc.and_(had_occurred, pc.not_equal(rows["subject"], "source")))
    apply_changes(draft, before)
    count_isr_removals(draft, before, StateVersions())
    return of_moment(draft.finish(0, at, 0))


def of_moment(snapshot: ReplicationSnapshot) -> dict[str, dict[str, Any]]:
    """Give what changes make of each cluster, without the progress of sources, and times that follow from it."""
    found = meaning(snapshot)
    for each in found.values():
        each.pop("sources")
        each["cluster"] = each["cluster"]._replace(watermark=None, primary_watermark=None)
    return found
