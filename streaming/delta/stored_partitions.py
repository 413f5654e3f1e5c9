"""Partitions of a state as the rows that a start read: a topic becomes objects when something first asks for it.

Of a million partitions most stay as they are for as long as the job runs. As columns they take a third of the memory,
and a start need not make objects of them.
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
        """Find the rows of each topic; they may be in any order."""
        self._rows = rows.select(PartitionState._fields).combine_chunks()
        codes = _topic_codes(self._rows)
        self._order = pc.array_sort_indices(codes)
        runs = pc.run_end_encode(codes.take(self._order), run_end_type=pa.int64())
        ends = runs.run_ends.to_pylist()
        begins = [0, *ends][:-1]
        self._firsts = self._rows.select([*_KEY, "topic"]).take(self._order.take(pa.array(begins, pa.int64())))
        keys = zip(*(self._firsts[name].to_pylist() for name in _KEY), strict=True)
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
        clusters, ids, topics = (self._firsts[name].to_pylist() for name in (*_KEY, "topic"))
        return dict(zip(zip(clusters, topics, strict=True), ids, strict=True))

    def take(self, keys: Collection[TopicKey]) -> Iterator[PartitionState]:
        """Remove topics and yield their partitions; those that are not here are passed over."""
        here = [key for key in keys if key in self._places]
        for begin in range(0, len(here), _TOPICS_AT_ONCE):
            some = here[begin : begin + _TOPICS_AT_ONCE]
            yield from states_of(PartitionState, self._rows_of(some))
            for key in some:
                del self._places[key]
        if not self._places:
            self._rows = self._rows.schema.empty_table()

    def rows(self) -> pa.Table:
        """Return the rows of the topics that are still here, in any order."""
        if sum(end - begin for begin, end in self._places.values()) == self._rows.num_rows:
            return self._rows
        return self._rows_of(self._places)

    def _rows_of(self, keys: Iterable[TopicKey]) -> pa.Table:
        places = [self._order.slice(begin, end - begin) for begin, end in map(self._places.__getitem__, keys)]
        return self._rows.take(pa.concat_arrays(places))


def in_topics_with(rows: pa.Table, column: str) -> pa.Array:
    """Return, per row, whether a boolean column holds of any row of its topic."""
    codes = _topic_codes(rows)
    return pc.is_in(codes, value_set=pc.unique(codes.filter(rows[column].combine_chunks())))


def _topic_codes(rows: pa.Table) -> pa.Array:
    """Return a number per row, the same for the rows of one topic."""
    cluster, topic = (rows[name].combine_chunks().dictionary_encode() for name in _KEY)
    clusters = pc.multiply(cluster.indices.cast(pa.int64()), pa.scalar(len(topic.dictionary), pa.int64()))
    return pc.add(clusters, topic.indices.cast(pa.int64()))
