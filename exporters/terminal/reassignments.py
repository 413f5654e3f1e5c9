"""The reassignments in progress: which replicas are still to come, and how much they have to copy.

From the partitions' state, and from the newest samples of their logs. Unknown stays unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from exporters.read_model.cluster_samples import bytes_to_go, is_reassigned, replicas_to_go
from exporters.read_model.event_filter import matches_topic
from exporters.terminal.quantities import size
from exporters.terminal.state_selection import print_rows
from exporters.terminal.state_view import columns_as_fields, freshness_columns, text
from exporters.terminal.table_layout import Field
from streaming.contracts.sample_tables import REPLICA_OFFSETS
from streaming.delta.log.queries import open_ours, plain, select

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot
    from exporters.terminal.output import RowOutput
    from exporters.terminal.state_selection import StateSelection
    from streaming.contracts.state import PartitionState
    from streaming.delta.store.place import Place

    Row = dict[str, Any]
    Replicas = dict[tuple[str, int], dict[int, Row]]


def show_reassignments(output: RowOutput, selection: StateSelection) -> None:
    """Print one row per partition that is being reassigned."""
    moving = [(cluster, row, reassigned_in(cluster, selection.topics)) for cluster, row in selection.clusters]
    sampled: dict[str, Replicas] = {}
    with selection.unreadable.collected():
        sampled = replicas_of(selection.folder, {each.topic_id for _, _, partitions in moving for each in partitions})
    rows = [
        reassignment
        for cluster, row, partitions in moving
        for reassignment in reassignment_rows(
            partitions, sampled.get(cluster.cluster.cluster_id, {}), freshness_columns(row)
        )
    ]
    fields = (
        Field("partition", lambda row: f"{row['topic']}-{row['partition']}"),
        Field("adding", text("adding_replicas")),
        Field("removing", text("removing_replicas")),
        Field("waits for", text("replicas_to_go")),
        Field("to copy", size("bytes_to_go"), is_number=True),
        *columns_as_fields(("records_to_go",)),
    )
    print_rows(output, selection, rows, fields, lambda row: "dim" if row["is_stale"] else "")
    if not rows and output.is_for_people:
        output.say("nothing is being reassigned")


def reassigned_in(cluster: ClusterSnapshot, topics: tuple[str, ...]) -> list[PartitionState]:
    """Return the partitions that are being reassigned, by name."""
    moving = filter(is_reassigned, cluster.unsettled.values())
    return sorted(
        (each for each in moving if matches_topic(each.topic, topics)), key=lambda each: (each.topic, each.partition)
    )


def replicas_of(folder: Place, topic_ids: set[str]) -> dict[str, Replicas]:
    """Return the newest samples of the replicas of some topics: by cluster id, partition and broker."""
    by_cluster: dict[str, Replicas] = {}
    if topic_ids:
        samples = select(open_ours(folder, REPLICA_OFFSETS), REPLICA_OFFSETS)
        for row in plain(samples.filter(pc.is_in(samples["topic_id"], pa.array(sorted(topic_ids))))).to_pylist():
            partition = by_cluster.setdefault(row["cluster_id"], {}).setdefault((row["topic_id"], row["partition"]), {})
            partition[row["broker"]] = row
    return by_cluster


def reassignment_rows(
    partitions: list[PartitionState], replicas: Replicas, freshness: Mapping[str, Any]
) -> Iterator[Row]:
    """Return a row per partition: what is added and removed, and what those that are added have yet to copy.

    ``bytes_to_go`` compares the sizes of logs, ``records_to_go`` their ends. Both are null while the leader or one of
    them has no sample.
    """
    for each in partitions:
        sampled = replicas.get((each.topic_id, each.partition), {})
        waiting = replicas_to_go(each)
        yield {
            **freshness,
            "topic_id": each.topic_id,
            "topic": each.topic,
            "partition": each.partition,
            "adding_replicas": list(each.adding_replicas),
            "removing_replicas": list(each.removing_replicas),
            "replicas_to_go": waiting,
            "bytes_to_go": bytes_to_go(each, {broker: row["size_bytes"] for broker, row in sampled.items()}),
            "records_to_go": _total(sampled.get(broker, {}).get("lag") for broker in waiting),
        }


def _total(amounts: Iterator[int | None]) -> int | None:
    counted = list(amounts)
    return None if None in counted else sum(filter(None, counted))
