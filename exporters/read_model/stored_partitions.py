"""Partitions of a base as the rows that were read: a topic becomes objects when something first asks for it.

Most pages of the past show a few topics of very many: the rest is counted by column and stays columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from exporters.read_model.snapshot import RECENT_MICROS, TopicPartitions
from streaming.contracts.state import PartitionState
from streaming.delta.state import states_of
from streaming.delta.tally_rows import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporters.read_model.draft import SnapshotDraft
    from exporters.read_model.snapshot import ReplicationSnapshot

_ORDER: Final = [("cluster_id", "ascending"), ("topic_id", "ascending"), ("partition", "ascending")]


class StoredTopic(Mapping[int, PartitionState]):
    """The partitions of one topic by number, decoded when one of them is asked for. For any thread."""

    __slots__ = ("begin", "count", "partitions", "rows")

    def __init__(self, rows: pa.Table, begin: int, count: int) -> None:
        """Keep the place of a topic in the rows of a base."""
        self.rows, self.begin, self.count = rows, begin, count
        self.partitions: dict[int, PartitionState] | None = None

    def _decoded(self) -> dict[int, PartitionState]:
        if self.partitions is None:
            decode([self])
        return self.partitions or {}

    def __getitem__(self, number: int) -> PartitionState:
        """Return a partition by its number."""
        return self._decoded()[number]

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers."""
        return iter(self._decoded())

    def __len__(self) -> int:
        """Return how many there are."""
        return self.count


def decode(topics: Sequence[StoredTopic]) -> None:
    """Decode topics of one base at once that will be asked for; one by one costs many times as much."""
    waiting = [each for each in topics if each.partitions is None]
    if waiting:
        places = chain.from_iterable(range(each.begin, each.begin + each.count) for each in waiting)
        partitions = states_of(PartitionState, waiting[0].rows.take(pa.array(places, pa.int64())))
        for topic in waiting:
            topic.partitions = {each.partition: each for each in islice(partitions, topic.count)}


def put_stored(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Put the partitions of a base into a draft that has no partitions yet, after its clusters.

    Args:
        draft: of nothing but clusters and brokers.
        rows: in the columns of ``partition_state``, one of each partition; tombstones, too.
    """
    for row in rows.select(["cluster_id", "cluster"]).group_by(["cluster_id", "cluster"]).aggregate([]).to_pylist():
        draft.cluster(row["cluster_id"], row["cluster"])
    deleted = rows.filter(rows["is_deleted"])
    live = rows.filter(pc.invert(rows["is_deleted"])).sort_by(_ORDER).combine_chunks()
    for cluster_id, shapes, totals in counted(live):
        draft.drafts[cluster_id].put_counted(shapes, totals)
    names = (live[name].to_pylist() for name in ("cluster_id", "topic_id", "topic"))
    _put_topics(draft, live, list(zip(*names, strict=True)))
    for partition in states_of(PartitionState, live.filter(_are_unsettled(live))):
        draft.drafts[partition.cluster_id].put_unsettled(partition)
    for partition in states_of(PartitionState, live.filter(_are_recent(draft, live))):
        draft.drafts[partition.cluster_id].put_recent(partition)
    for partition in states_of(PartitionState, deleted):
        draft.put_partition(partition)


def decode_changed(snapshot: ReplicationSnapshot, changes: pa.Table) -> None:
    """Decode the topics of a snapshot whose partitions some changes are about."""
    keys = changes.select(["cluster_id", "topic_id"]).group_by(["cluster_id", "topic_id"]).aggregate([])
    topics = []
    for row in keys.to_pylist():
        cluster = snapshot.clusters.get(row["cluster_id"])
        topic = None if cluster is None else cluster.topics.get(row["topic_id"])
        if topic is not None and isinstance(topic.partitions, StoredTopic):
            topics.append(topic.partitions)
    decode(topics)


def _put_topics(draft: SnapshotDraft, live: pa.Table, keys: list[tuple[str, str, str]]) -> None:
    topics: dict[str, dict[str, TopicPartitions]] = {}
    begin = 0
    for end in range(1, len(keys) + 1):
        if end == len(keys) or keys[end][:2] != keys[begin][:2]:
            cluster_id, topic_id, _ = keys[begin]
            name = keys[end - 1][2]
            stored = StoredTopic(live, begin, end - begin)
            topics.setdefault(cluster_id, {})[topic_id] = TopicPartitions(topic_id, name, stored)
            begin = end
    for cluster_id, of_cluster in topics.items():
        draft.drafts[cluster_id].put_topics(of_cluster)


def _are_unsettled(rows: pa.Table) -> Any:  # noqa: ANN401 - pyarrow ships no types
    is_unsettled = pc.or_(rows["is_offline"], rows["is_under_replicated"])
    is_unsettled = pc.or_(is_unsettled, pc.fill_null(rows["is_under_min_isr"], fill_value=False))
    for name in ("adding_replicas", "removing_replicas"):
        is_unsettled = pc.or_(is_unsettled, pc.greater(pc.fill_null(pc.list_value_length(rows[name]), 0), 0))
    return pc.fill_null(is_unsettled, fill_value=False)


def _are_recent(draft: SnapshotDraft, rows: pa.Table) -> Any:  # noqa: ANN401 - as above
    """Return, per row, whether a partition changed lately by the clock of its cluster."""
    clusters = rows["cluster_id"].combine_chunks().dictionary_encode()
    since = [draft.drafts[each].watermark - RECENT_MICROS for each in clusters.dictionary.to_pylist()]
    oldest = pa.array(since, pa.int64()).take(clusters.indices)
    return pc.fill_null(pc.greater_equal(rows["changed_at"].cast(pa.int64()), oldest), fill_value=False)
