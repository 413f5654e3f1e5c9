"""The state of clusters at one version of the change log, as the batches and the derived tables have it."""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Subject
from streaming.contracts.state import PartitionState
from streaming.delta.state import apply_changes, count_isr_removals, isr_removals, states_of
from streaming.delta.tally_rows import add_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from streaming.changes.state import TopicKey
    from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
    from streaming.delta.state import StateVersions

IsrRemovals = Counter[tuple[str, int, str]]
"""(cluster id, broker, cause) to how often the broker was removed from an ISR."""


@dataclass(slots=True)
class ClustersState:
    """The state of some clusters at one version of the change log, and its counts.

    Attributes:
        state: the state.
        version: of the change log.
        tally: the counts of its partitions.
        removals: how often its brokers were removed from ISRs.
        dropped: by cluster, the time up to which tombstones were left out, and the files of ``partition_state`` then.
    """

    state: ReplicationState = field(default_factory=ReplicationState)
    version: int = -1
    tally: SuspectTally = field(default_factory=SuspectTally)
    removals: IsrRemovals = field(default_factory=Counter)
    dropped: dict[ClusterId, tuple[Micros | None, frozenset[str]]] = field(default_factory=dict)

    def applied(self, touched: ReplicationState, version: int) -> None:
        """Apply what a committed batch touched."""
        self.tally.apply(self.state, touched)
        self.tally.forget(self.state.apply(touched))
        self.version = version

    def count_removals(self, changes: pa.Table) -> None:
        """Count the removals in rows of the change log that follow this state."""
        for (cluster_id, broker, cause), count in isr_removals(changes).items():
            self.removals[cluster_id, broker, cause] += count

    def copied(self, version: int) -> ClustersState:
        """Return a copy of everything but the partitions, which later batches do not change, as of a version."""
        frozen = ReplicationState(
            brokers=copy(self.state.brokers),
            clusters=copy(self.state.clusters),
            sources=copy(self.state.sources),
            configs=copy(self.state.configs),
        )
        return ClustersState(frozen, version, self.tally.copy(), self.removals.copy(), self.dropped)


class RecoveredState:
    """Receives the state that is read from the tables (``delta.state.TotalsHolder``)."""

    def __init__(self) -> None:
        self._state = state = ReplicationState()
        self.put_cluster, self.put_broker = state.put_cluster, state.put_broker
        self.put_partition, self.put_source = state.put_partition, state.put_source
        self._stored: StoredPartitions | None = None
        self._removals: IsrRemovals = Counter()

    def at(self, version: int) -> ClustersState:
        """Return the state that was read, as of a version, with the counts of suspects."""
        decoded = (each for partitions in self._state.topics.values() for each in partitions.values())
        tally = SuspectTally(decoded)
        if self._stored is not None:
            add_rows(tally, self._stored.rows())
            self._stored = None  # the state alone keeps it, as long as it needs it
        return ClustersState(self._state, version, tally, self._removals)

    def put_partitions(self, rows: pa.Table) -> None:
        """Set the partitions of ``partition_state``; topics without tombstones stay columns for now."""
        with_tombstones = in_topics_with(rows, "is_deleted")
        self._stored = StoredPartitions(rows.filter(pc.invert(with_tombstones)))
        self._state.stored = self._stored if len(self._stored) else None
        self._state.topic_ids.update(self._stored.names())
        for partition in states_of(PartitionState, rows.filter(with_tombstones)):
            self._state.put_partition(partition)

    def follow(self, changes: pa.Table, as_of: StateVersions) -> None:
        """Apply rows of the change log to what the state tables had."""
        self._load_topics_of(changes, as_of)
        apply_changes(self, changes, as_of)
        count_isr_removals(self, changes, as_of)

    def _load_topics_of(self, changes: pa.Table, as_of: StateVersions) -> None:
        """Decode at once the topics whose partitions will be set by rows of the change log."""
        is_new = pc.greater(changes["version"], as_of.partitions)
        new = changes.filter(pc.and_(is_new, pc.equal(changes["subject"], Subject.PARTITION.value)))
        keys = new.select(["cluster_id", "topic_id"]).group_by(["cluster_id", "topic_id"]).aggregate([])
        self._state.load([(row["cluster_id"], row["topic_id"]) for row in keys.to_pylist()])

    def add_isr_removals(self, cluster_id: ClusterId, _cluster: str, broker: BrokerId, cause: str, count: int) -> None:
        """Count removals of a broker from ISRs."""
        self._removals[cluster_id, broker, cause] += count


# Partitions of a state as the rows that a start read: a topic becomes objects when something first asks for it.
#
# As columns, a million partitions take a third of the memory, and a start need not make objects of them. Most topics
# stay columns until a full report differs from the state, or their partitions change.


_KEY: Final = ("cluster_id", "topic_id")
# So that reading a whole state does not hold it in memory three times.
TOPICS_AT_ONCE: Final = 10_000


class StoredPartitions:
    """Rows of ``partition_state`` by topic. Implements :class:`streaming.changes.state.StoredTopics`."""

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
        """Remove topics and yield their partitions; ignore topics that are not here."""
        here = [key for key in keys if key in self._places]
        for begin in range(0, len(here), TOPICS_AT_ONCE):
            some = here[begin : begin + TOPICS_AT_ONCE]
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
    """Return, per row, whether a boolean column is true in any row of its topic."""
    codes = _topic_codes(rows)
    return pc.is_in(codes, value_set=pc.unique(codes.filter(rows[column].combine_chunks())))


def _topic_codes(rows: pa.Table) -> pa.Array:
    """Return a number per row, the same for the rows of one topic."""
    cluster, topic = (rows[name].combine_chunks().dictionary_encode() for name in _KEY)
    clusters = pc.multiply(cluster.indices.cast(pa.int64()), pa.scalar(len(topic.dictionary), pa.int64()))
    return pc.add(clusters, topic.indices.cast(pa.int64()))
