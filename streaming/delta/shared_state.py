"""The state of the job at one version of the change log, shared between the batches and the derived tables."""

from __future__ import annotations

import threading
from collections import Counter
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Subject
from streaming.contracts.state import PartitionState
from streaming.delta.partition_counts import add_rows
from streaming.delta.state_rows import states_of
from streaming.delta.stored_partitions import StoredPartitions, in_topics_with

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.contracts.identifiers import BrokerId, ClusterId
    from streaming.contracts.state import BrokerState, ClusterState, SourceState
    from streaming.delta.state_reader import AsOf, Configs

IsrRemovals = Counter[tuple[str, int, str]]
"""(cluster id, broker, cause) to how often the broker was removed from an ISR."""


@dataclass(slots=True)
class SharedState:
    """The state at one version of the change log. One thread applies batches, another one reads copies.

    Attributes:
        stepped: the newest version with more than how far sources were applied.
    """

    state: ReplicationState = field(default_factory=ReplicationState)
    version: int = -1
    stepped: int = -1
    tally: SuspectTally = field(default_factory=SuspectTally)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def applied(self, touched: ReplicationState, version: int, *, only_sources: bool = False) -> None:
        """Apply what a committed batch touched; ``only_sources``: how far sources were applied, and nothing else."""
        with self.lock:
            self.tally.apply(self.state, touched)
            self.tally.forget(self.state.apply(touched))
            self.version = version
            self.stepped = self.stepped if only_sources else version

    def sources(self) -> tuple[list[SourceState], int]:
        """Return how far every source was applied, and the version that this follows from."""
        with self.lock:
            return list(self.state.sources.values()), self.version

    def copied(self) -> tuple[ReplicationState, SuspectTally, int]:
        """Return copies of everything but the partitions, which later batches do not change, and their version."""
        with self.lock:
            frozen = ReplicationState(
                brokers=copy(self.state.brokers),
                clusters=copy(self.state.clusters),
                sources=copy(self.state.sources),
                configs=copy(self.state.configs),
            )
            return frozen, self.tally.copy(), self.version


class Recovered:
    """Receives the state that is read from the tables at a start (``state_reader.StateHolder``)."""

    def __init__(self) -> None:
        self._state = ReplicationState()
        self._stored: StoredPartitions | None = None
        self.isr_removals: IsrRemovals = Counter()

    def shared(self, version: int) -> SharedState:
        """Return the state that was read, with the counts of suspects."""
        decoded = (each for partitions in self._state.topics.values() for each in partitions.values())
        tally = SuspectTally(decoded)
        if self._stored is not None:
            add_rows(tally, self._stored.rows())
            self._stored = None  # the state alone keeps it, as long as it needs it
        return SharedState(state=self._state, version=version, tally=tally)

    def put_partitions(self, rows: pa.Table) -> None:
        """Set the partitions of ``partition_state``; a topic without tombstones stays columns for now."""
        with_tombstones = in_topics_with(rows, "is_deleted")
        self._stored = StoredPartitions(rows.filter(pc.invert(with_tombstones)))
        self._state.stored = self._stored if len(self._stored) else None
        self._state.topic_ids.update(self._stored.names())
        for partition in states_of(PartitionState, rows.filter(with_tombstones)):
            self._state.put_partition(partition)

    def load_topics_of(self, changes: pa.Table, as_of: AsOf) -> None:
        """Decode at once the topics whose partitions will be set by rows of the change log."""
        is_new = pc.greater(changes["version"], as_of.partitions)
        new = changes.filter(pc.and_(is_new, pc.equal(changes["subject"], Subject.PARTITION.value)))
        keys = new.select(["cluster_id", "topic_id"]).group_by(["cluster_id", "topic_id"]).aggregate([])
        self._state.load([(row["cluster_id"], row["topic_id"]) for row in keys.to_pylist()])

    def put_cluster(self, cluster: ClusterState, configs: Configs) -> None:
        """Set a cluster, and the configured values that its row carries."""
        self._state.put_cluster(cluster, configs)

    def put_broker(self, broker: BrokerState) -> None:
        """Set a broker."""
        self._state.put_broker(broker)

    def put_partition(self, partition: PartitionState) -> None:
        """Set a partition."""
        self._state.put_partition(partition)

    def put_source(self, source: SourceState) -> None:
        """Set how far a source was applied."""
        self._state.put_source(source)

    def add_isr_removals(self, cluster_id: ClusterId, _cluster: str, broker: BrokerId, cause: str, count: int) -> None:
        """Count removals of a broker from ISRs."""
        self.isr_removals[cluster_id, broker, cause] += count
