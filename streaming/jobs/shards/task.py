"""A shard on an executor: folds one partition of the bus, and writes the files that the driver will commit.

Runs in Spark's Python workers. Knows Arrow and the tables; what Spark is asked for is in ``shards.batch``.
"""

# Theory of operation
#
# A partition of the bus holds whole Kafka clusters, so nothing of a batch depends on another partition. The worker that
# folds it keeps the state of its clusters until the next batch. That state is a pure function of the tables and their
# version, so any worker may fold any partition: one that does not have the state reads it from the tables.
#
# A worker does not know whether what it has folded was committed. Each result carries a token, and the next task says
# whose result of this partition the driver has committed. A state of another token is dropped and read again: after a
# commit that failed, a task that ran twice, a partition that another worker has folded since.
#
# The version that a batch will make is known before (``delta.log.writer``): its rows carry it. If another writer makes
# that version, no commit names these files, and they are swept.
#
# Invariant: tables are equal, wherever partitions are folded, and whatever ends in between.
# tests/jobs/shards/test_shards.py, tests/end_to_end/test_shards.py.

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import ClusterId
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.log import in_commit
from streaming.delta.incidents.table import IncidentRows
from streaming.delta.log.commit import written
from streaming.delta.log.definitions import file_layout
from streaming.delta.projections.of_clusters import ClustersState, derived, recovered
from streaming.delta.projections.shared_state import SharedState
from streaming.jobs.queries import Stopwatch
from streaming.jobs.shards.reading import Reading, Task, by_partition, held, packed, read_rows
from streaming.jobs.shards.shard import Shard
from streaming.runtime.memory import collected_after

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    import pyarrow as pa

    from streaming.changes.incidents.grouping import IncidentGaps
    from streaming.contracts.state import SourceState
    from streaming.delta.incidents.table import ChangedIncident
    from streaming.delta.log.cluster_files import Adds
    from streaming.delta.projections.of_clusters import Derived, DerivedUpto
    from streaming.delta.quarantine import RefusedRecord
    from streaming.delta.store.place import Place
    from streaming.jobs.queries import BatchResult
    from streaming.jobs.shards.shard import Folded

ROWS_OF_A_SHARD: Final = 1 << 32
"""More than the rows of any commit: the ordinals of a shard begin at its number times this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """State of the derived tables before a round.

    Attributes:
        upto: the versions up to which they are computed.
        files: of each cluster in ``partition_state``.
    """

    upto: DerivedUpto
    files: Mapping[ClusterId, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncidents:
    """The incidents that may still change at the version of a task, and the gaps between incidents."""

    gaps: IncidentGaps
    carried: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask(Task):
    """Input of a task on replication.

    Attributes:
        base: the version of the change log that the batch builds on.
        committed_at: the time of its commit, microseconds.
        refused: applied records that were refused and that no state of their source counts, by source.
        projection: the derived tables are written as of ``base`` with this batch; None: they are not.
        incidents: None: another job folds them, or none.
    """

    base: int
    committed_at: int
    refused: Mapping[str, int] = field(default_factory=dict)
    projection: Projection | None = None
    incidents: OpenIncidents | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardResult:
    """Result of a task on replication.

    Attributes:
        reading: what was read.
        token: of this result.
        clusters: that its sources and observations are of.
        added: files of ``partition_changes``.
        positions: newest position of each source.
        log_ids: of the logs that have one.
        unreported: refused records that no state of their source counts, by source.
        refused: the records that were refused.
        only_sources: nothing changed but how far sources were read.
        sources: the new state of sources.
        result: for the metrics of the job.
        derived: of the clusters that the worker had before the batch; None where nothing was asked for.
        incidents: those that changed.
    """

    reading: Reading
    token: str
    clusters: frozenset[ClusterId]
    added: Adds
    positions: Mapping[str, int]
    log_ids: Mapping[str, int]
    unreported: Mapping[str, int]
    refused: Sequence[RefusedRecord]
    only_sources: bool
    sources: Sequence[SourceState]
    result: BatchResult
    derived: Derived | None
    incidents: Sequence[ChangedIncident]


class ClustersShard(Shard):
    """The shard of a partition: reads the state of a cluster when the first observation of it comes."""

    def __init__(self, tables: Place, base: int) -> None:
        """Begin without any cluster; ``base``: a version of the change log."""
        super().__init__(SharedState(version=base), Counter())
        self._tables = tables
        self.token = ""
        self.clusters: set[ClusterId] = set()
        self.state = ClustersState(self.shared, Counter())
        self.incidents: IncidentRows | None = None
        self._open: OpenIncidents | None = None

    def begin(self, task: ShardTask) -> None:
        """Begin a task. What was committed since the last one has changed nothing of these clusters."""
        self.shared.version = task.base
        self._open = task.incidents

    def prepare(self, clusters: AbstractSet[ClusterId]) -> None:
        """Read the clusters that are not here; those that are, too, because a state is read as a whole."""
        if clusters <= self.clusters:
            return
        self.clusters |= clusters
        self.state = recovered(self._tables, self.shared.version, self.clusters)
        self.shared = self.state.shared
        if (incidents := self._open) is not None:
            self.incidents = IncidentRows(
                self._tables, incidents.gaps, self.shared.version, incidents.carried, clusters=self.clusters
            )


HELD: Final[dict[tuple[str, int], ClustersShard]] = {}
"""The shards of this worker, by tables and partition."""


def fold_partitions(task: ShardTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold the rows of a task of Spark; yield the result.

    Args:
        task: its input.
        batches: rows of one partition of the bus.
    """
    with collected_after():
        yield from by_partition(batches, partial(folded_partition, task))


def folded_partition(task: ShardTask, partition: int, rows: pa.Table) -> ShardResult:
    """Fold the rows of one partition, in the order of their offsets."""
    watch, shard = Stopwatch(), held(HELD, task, partition, lambda: ClustersShard(task.tables, task.base))
    shard.begin(task)
    rows, reading = read_rows(task, partition, rows)
    sources = set(reading.consumed)
    shard.refused = Counter({source: count for source, count in task.refused.items() if source in sources})
    clusters = task.clusters_of(sources)
    shard.prepare(clusters)
    folded = shard.fold(rows, task, watch)
    computed = None if task.projection is None else _derived(task, task.projection, partition, shard)
    watch.lap("projections")
    added, incidents = _written(task, partition, shard, folded) if folded.decoded.positions else ([], [])
    watch.lap("write")
    shard.token = uuid.uuid4().hex
    return ShardResult(
        reading=reading,
        token=shard.token,
        clusters=frozenset(clusters | {observed.cluster_id for observed in folded.decoded.observations}),
        added=added,
        positions=folded.decoded.positions,
        log_ids=folded.decoded.log_ids,
        unreported=folded.unreported,
        refused=folded.refused,
        only_sources=folded.only_sources,
        sources=tuple(folded.touched.sources.values()),
        result=folded.result(task.base, watch),
        derived=computed,
        incidents=incidents,
    )


def _written(
    task: ShardTask, partition: int, shard: ClustersShard, folded: Folded
) -> tuple[Adds, list[ChangedIncident]]:
    """Write the rows of a batch as those of the version that it will make, and take them over; follow incidents."""
    version = task.base + 1
    rows = in_commit(folded.rows, version, task.committed_at, partition * ROWS_OF_A_SHARD)
    added = list(written(task.tables / PARTITION_CHANGES.name, rows, file_layout(PARTITION_CHANGES)))
    shard.applied(folded, version)
    shard.state.count_removals(rows)
    return added, [] if shard.incidents is None else shard.incidents.fold([(version, rows)])


def _derived(task: ShardTask, projection: Projection, partition: int, shard: ClustersShard) -> Derived:
    """Compute the derived tables of the clusters that are at home here: another shard may hold one of them, too."""
    own = {cluster_id for cluster_id in shard.clusters if task.homes.get(cluster_id, partition) == partition}
    return derived(task.tables, shard.state, own, projection.upto, projection.files)


def project_clusters(
    task: ShardTask, projection: Projection, groups: Sequence[Collection[ClusterId]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compute the derived tables of clusters that no row of a batch was of; yield what was computed of each group.

    Args:
        task: where, and as of which version.
        projection: what the derived tables have.
        groups: ids of clusters.
        batches: rows with the ``id`` of a group each.
    """
    for batch in batches:
        for number in batch["id"].to_pylist():
            clusters = groups[number]
            state = recovered(task.tables, task.base, clusters)
            yield packed(derived(task.tables, state, clusters, projection.upto, projection.files))
