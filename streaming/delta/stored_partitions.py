"""Partitions of a state as the rows that a start read: a topic becomes objects when something first asks for it.

As columns, a million partitions take a third of the memory, and a start need not make objects of them. Most topics stay
columns until a full report differs from the state, or their partitions change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.state import PartitionState
from streaming.delta.state_rows import states_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from streaming.changes.state import TopicKey
    from streaming.contracts.identifiers import ClusterId, TopicId

_KEY: Final = ("cluster_id", "topic_id")
# So that a state which is asked for as a whole is not there three times on the way.
_TOPICS_AT_ONCE: Final = 10_000


class StoredPartitions:
    """Rows of ``partition_state`` by topic. Implements :class:`streaming.changes.state.Stored`."""

    def __init__(self, rows: pa.Table) -> None:
        """Keep rows of ``partition_state``, in any order."""
        self._hold(rows)

    def _hold(self, rows: pa.Table) -> None:
        """Find the rows of each topic, and how many partitions it has."""
        self._rows = rows.select(PartitionState._fields).combine_chunks()
        topics = _topic_codes(self._rows)
        number = self._rows["partition"].combine_chunks()
        self._order = pc.array_sort_indices(pc.add(pc.multiply(topics, pa.scalar(1 << 31, pa.int64())), number))
        runs = pc.run_end_encode(topics.take(self._order), run_end_type=pa.int64())
        ends = runs.run_ends.to_pylist()
        begins = [0, *ends][:-1]
        self._lasts = self._rows.select([*_KEY, "topic", "partition"]).take(
            self._order.take(pc.subtract(runs.run_ends, 1))
        )
        keys = zip(*(self._lasts[name].to_pylist() for name in _KEY), strict=True)
        self._places = {key: (begin, end) for key, begin, end in zip(keys, begins, ends, strict=True)}

    def __contains__(self, key: object) -> bool:
        """Return whether a topic is still here."""
        return key in self._places

    def __iter__(self) -> Iterator[TopicKey]:
        """Iterate over the topics that are still here."""
        return iter(self._places)

    def __len__(self) -> int:
        """Return how many topics are still here."""
        return len(self._places)

    def names(self) -> Mapping[tuple[ClusterId, str], TopicId]:
        """Return the topic ids by cluster id and topic name."""
        clusters, ids, topics = (self._lasts[name].to_pylist() for name in (*_KEY, "topic"))
        return dict(zip(zip(clusters, topics, strict=True), ids, strict=True))

    def beyond(self, cluster_id: ClusterId, counts: Mapping[TopicId, int]) -> list[TopicKey]:
        """Find the topics of a cluster that have more partitions than these; those without a count have none."""
        lasts = zip(*(self._lasts[name].to_pylist() for name in (*_KEY, "partition")), strict=True)
        return [
            (owner, topic_id)
            for owner, topic_id, last in lasts
            if owner == cluster_id and last >= counts.get(topic_id, 0) and (owner, topic_id) in self._places
        ]

    def take(self, keys: Collection[TopicKey]) -> Iterator[PartitionState]:
        """Remove topics and yield their partitions; those that are not here are passed over."""
        here = [key for key in keys if key in self._places]
        for begin in range(0, len(here), _TOPICS_AT_ONCE):
            some = here[begin : begin + _TOPICS_AT_ONCE]
            yield from states_of(PartitionState, self._rows_of(some))
            for key in some:
                del self._places[key]
        if len(self._places) <= self._lasts.num_rows // 2:  # at most twice the memory of what is still here
            self._hold(self.rows())

    def rows(self) -> pa.Table:
        """Return the rows of the topics that are still here, in any order."""
        if sum(end - begin for begin, end in self._places.values()) == self._rows.num_rows:
            return self._rows
        return self._rows_of(self._places)

    def _rows_of(self, keys: Iterable[TopicKey]) -> pa.Table:
        places = [self._order.slice(begin, end - begin) for begin, end in map(self._places.__getitem__, keys)]
        return self._rows.take(pa.concat_arrays([self._order.slice(0, 0), *places]))


def in_topics_with(rows: pa.Table, column: str) -> pa.Array:
    """Return, per row, whether a boolean column holds of any row of its topic."""
    codes = _topic_codes(rows)
    return pc.is_in(codes, value_set=pc.unique(codes.filter(rows[column].combine_chunks())))


def _topic_codes(rows: pa.Table) -> pa.Array:
    """Return a number per row, the same for the rows of one topic."""
    cluster, topic = (rows[name].combine_chunks().dictionary_encode() for name in _KEY)
    clusters = pc.multiply(cluster.indices.cast(pa.int64()), pa.scalar(len(topic.dictionary), pa.int64()))
    return pc.add(clusters, topic.indices.cast(pa.int64()))
