"""Partitions of a base as the rows that were read: a topic becomes objects when something first asks for it.

Most pages of the past show a few topics of very many: the rest is counted by column and stays columns.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from exporters.read_model.snapshot import RECENT_MICROS, TopicPartitions
from streaming.contracts.state import PartitionState
from streaming.delta.state import states_of
from streaming.delta.tally_rows import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from exporters.read_model.draft import SnapshotDraft
    from exporters.read_model.snapshot import ReplicationSnapshot

STORED_ORDER: Final = [("cluster_id", "ascending"), ("topic_id", "ascending"), ("partition", "ascending")]


class _Rows:
    """Rows of one topic of a base; its partitions are decoded all at once, or some of them before that."""

    __slots__ = ("begin", "count", "is_whole", "partitions", "some", "table")

    def __init__(self, table: pa.Table, begin: int, count: int, *, is_whole: bool) -> None:
        """Keep the place of a topic; ``is_whole``: its partitions are 0, 1, 2 and so on, in this order."""
        self.table, self.begin, self.count, self.is_whole = table, begin, count, is_whole
        self.some: dict[int, PartitionState] = {}
        self.partitions: dict[int, PartitionState] | None = None

    def all(self) -> dict[int, PartitionState]:
        """Return every partition by its number."""
        partitions = self.partitions
        if partitions is None:
            rows = self.table.slice(self.begin, self.count)
            partitions = self.partitions = {each.partition: each for each in states_of(PartitionState, rows)}
        return partitions

    def __contains__(self, number: object) -> bool:
        """Return whether a partition is one of them."""
        return 0 <= number < self.count if self.is_whole and isinstance(number, int) else number in self.all()

    def numbers(self) -> Iterable[int]:
        """Return the numbers, in their order."""
        return range(self.count) if self.is_whole else self.all()


class StoredTopic(MutableMapping[int, PartitionState]):
    """The partitions of one topic by number: those of a base but for what a draft has set since. For any thread."""

    __slots__ = ("_changed", "_gone", "rows")

    def __init__(
        self, rows: _Rows, changed: Mapping[int, PartitionState] = MappingProxyType({}), gone: Iterable[int] = ()
    ) -> None:
        """Begin with the rows of a base, some of which were replaced or are gone."""
        self.rows, self._changed, self._gone = rows, dict(changed), set(gone)

    def __copy__(self) -> StoredTopic:
        """Return a copy that a draft may change."""
        return StoredTopic(self.rows, self._changed, self._gone)

    def __getitem__(self, number: int) -> PartitionState:
        """Return a partition by its number."""
        if number in self._changed:
            return self._changed[number]
        if number in self._gone or number not in self.rows:
            raise KeyError(number)
        return self.rows.some.get(number) or self.rows.all()[number]

    def __setitem__(self, number: int, partition: PartitionState) -> None:
        """Set a partition of a draft."""
        self._changed[number] = partition
        self._gone.discard(number)

    def __delitem__(self, number: int) -> None:
        """Take a partition out of a draft."""
        if number not in self:
            raise KeyError(number)
        self._changed.pop(number, None)
        if number in self.rows:
            self._gone.add(number)

    def __contains__(self, number: object) -> bool:
        """Return whether there is such a partition."""
        return number in self._changed or (number not in self._gone and number in self.rows)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers."""
        yield from (number for number in self.rows.numbers() if number not in self._gone)
        yield from (number for number in self._changed if number not in self.rows)

    def __len__(self) -> int:
        """Return how many there are."""
        if self.rows.is_whole and (not self._changed or max(self._changed) < self.rows.count):  # almost always
            return self.rows.count - len(self._gone)
        return self.rows.count - len(self._gone) + sum(number not in self.rows for number in self._changed)


def put_stored(draft: SnapshotDraft, live: pa.Table, deleted: pa.Table) -> None:
    """Put the partitions of a base into a draft that has no partitions yet, after its clusters.

    Args:
        draft: of nothing but clusters and brokers.
        live: partitions in the columns of ``partition_state`` and in ``STORED_ORDER``, each once.
        deleted: tombstones, in the same columns.
    """
    live = live.combine_chunks()
    for rows in (live, deleted):
        for row in rows.select(["cluster_id", "cluster"]).group_by(["cluster_id", "cluster"]).aggregate([]).to_pylist():
            draft.cluster(row["cluster_id"], row["cluster"])
    for cluster_id, shapes, totals in counted(live):
        draft.drafts[cluster_id].put_counted(shapes, totals)
    _put_topics(draft, live)
    for partition in states_of(PartitionState, live.filter(_are_unsettled(live))):
        draft.drafts[partition.cluster_id].put_unsettled(partition)
    for partition in states_of(PartitionState, live.filter(_are_recent(draft, live))):
        draft.drafts[partition.cluster_id].put_recent(partition)
    for partition in states_of(PartitionState, deleted):
        draft.put_partition(partition)


def decode_changed(snapshot: ReplicationSnapshot, changes: pa.Table) -> None:
    """Decode the partitions of a snapshot that some changes are about, at once: one by one costs many times as much."""
    names = ("cluster_id", "topic_id", "partition")
    waiting: list[tuple[_Rows, int]] = []
    for cluster_id, topic_id, number in zip(*(changes[name].to_pylist() for name in names), strict=True):
        cluster = snapshot.clusters.get(cluster_id)
        topic = None if cluster is None else cluster.topics.get(topic_id)
        if topic is not None and isinstance(topic.partitions, StoredTopic):
            rows = topic.partitions.rows
            if rows.is_whole and rows.partitions is None and number in rows and number not in rows.some:
                waiting.append((rows, number))
    if waiting:
        places = pa.array([rows.begin + number for rows, number in waiting], pa.int64())
        for (rows, number), partition in zip(
            waiting, states_of(PartitionState, waiting[0][0].table.take(places)), strict=True
        ):
            rows.some[number] = partition


def _put_topics(draft: SnapshotDraft, live: pa.Table) -> None:
    if not live.num_rows:
        return
    topics: dict[str, dict[str, TopicPartitions]] = {}
    begins = _begins(live, ("cluster_id", "topic_id"))
    names = (live[name].take(begins).to_pylist() for name in ("cluster_id", "topic_id", "topic"))
    places = begins.to_pylist()
    ends = [*places[1:], live.num_rows]
    last = live["partition"].take(pa.array([end - 1 for end in ends], pa.int64())).to_pylist()
    for begin, end, number, cluster_id, topic_id, name in zip(places, ends, last, *names, strict=False):
        stored = StoredTopic(_Rows(live, begin, end - begin, is_whole=number == end - begin - 1))
        topics.setdefault(cluster_id, {})[topic_id] = TopicPartitions(topic_id, name, stored)
    for cluster_id, of_cluster in topics.items():
        draft.drafts[cluster_id].put_topics(of_cluster)


def _begins(rows: pa.Table, names: Iterable[str]) -> pa.Array:
    """Return the number of each row of which a value differs from the row before."""
    is_begin = pa.array([False] * (rows.num_rows - 1), pa.bool_())
    for name in names:
        column = rows[name].combine_chunks()
        is_begin = pc.or_(is_begin, pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)))
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.add(pc.indices_nonzero(is_begin).cast(pa.int64()), 1)])


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
