"""A task on replication: folds one partition of the bus, and writes the files that the driver will commit.

Runs in the driver, or in Spark's Python workers on executors (``shards.workers``). Knows Arrow and the tables.
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
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import ClusterId
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.log import in_commit
from streaming.delta.incidents.table import FoldedIncidents, IncidentRows
from streaming.delta.log.commit import written
from streaming.delta.log.definitions import file_layout
from streaming.delta.projections.of_clusters import ClustersState, derived, recovered
from streaming.delta.projections.shared_state import SharedState
from streaming.jobs.queries import Stopwatch
from streaming.jobs.shards.reading import Reading, Task, read_rows
from streaming.jobs.shards.shard import Shard
from streaming.jobs.shards.workers import done_on_executor
from streaming.runtime.memory import never_collected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    import pyarrow as pa

    from streaming.changes.incidents.grouping import IncidentGaps
    from streaming.contracts.state import SourceState
    from streaming.delta.log.cluster_files import Adds
    from streaming.delta.projections.of_clusters import Derived, DerivedBefore
    from streaming.delta.quarantine import RefusedRecord
    from streaming.delta.store.place import Place
    from streaming.jobs.queries import BatchResult
    from streaming.jobs.shards.decoded_batch import ReadLog
    from streaming.jobs.shards.shard import Folded

ROWS_OF_A_SHARD: Final = 1 << 32
"""More than the rows of any commit: the ordinals of a shard begin at its number times this."""


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
        derived_before: the derived tables are computed as of ``base`` with this batch; None: they are not.
        incidents: None: another job folds them, or none.
    """

    base: int
    committed_at: int
    refused: Mapping[str, int] = field(default_factory=dict)
    derived_before: DerivedBefore | None = None
    incidents: OpenIncidents | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardResult:
    """Result of a task on replication.

    Attributes:
        reading: what was read.
        token: of this result.
        clusters: of its sources and observations.
        added: files of ``partition_changes``.
        positions: newest position of each source.
        log_ids: of the logs that have one.
        unreported: refused records that no state of their source counts, by source.
        refused: the records that were refused.
        only_sources: nothing changed except how far sources were read.
        sources: the new state of sources.
        result: for the metrics of the job.
        derived: of the clusters that the worker had before the batch; None if nothing was requested.
        incidents: those that changed, and what their numbers follow from.
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
    incidents: FoldedIncidents


class ClustersShard(Shard):
    """The shard of a partition: reads the state of a cluster when the first observation of it comes."""

    def __init__(self, tables: Place, base: int, read: ReadLog | None = None, published: Path | None = None) -> None:
        """Begin without any cluster; ``base``: a version of the change log; the rest as :class:`Shard`."""
        super().__init__(SharedState(version=base), Counter(), read, published)
        self._tables = tables
        self.token = ""
        self.before: str | None = None
        self.clusters: set[ClusterId] = set()
        self.state = ClustersState(self.shared, Counter())
        self.incidents: IncidentRows | None = None
        self._open: OpenIncidents | None = None
        self._reported: AbstractSet[ClusterId] = frozenset()

    def begin(self, task: ShardTask) -> None:
        """Begin a task. What was committed since the last one has changed nothing of these clusters."""
        self.shared.version = task.base
        self._open, self._reported = task.incidents, task.reported

    def open(self, task: ShardTask) -> None:
        """Read the state of every cluster of which a source has reported."""
        self.begin(task)
        self.prepare(task.reported)

    def prepare(self, clusters: AbstractSet[ClusterId]) -> None:
        """Read the clusters that are not here; those that are, too, because a state is read as a whole.

        The tables have nothing about a cluster on which no source has reported before.
        """
        is_new = self.clusters and self._reported.isdisjoint(clusters - self.clusters)
        if is_new or clusters <= self.clusters:
            self.clusters |= clusters
            return
        self.clusters |= clusters
        with never_collected():
            self.state = recovered(self._tables, self.shared.version, self.clusters)
        self.shared = self.state.shared
        if (incidents := self._open) is not None:
            self.incidents = IncidentRows(
                self._tables, incidents.gaps, self.shared.version, incidents.carried, clusters=self.clusters
            )

    def own(self, task: ShardTask, partition: int) -> set[ClusterId]:
        """Return the clusters that are at home in a partition: another shard may hold one of them, too."""
        return {each for each in self.clusters if task.homes.get(each, partition) == partition}


HELD: Final[dict[tuple[str, int], ClustersShard]] = {}
"""The shards of this worker, by tables and partition."""


def fold_partitions(task: ShardTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold the rows of a task of Spark; yield the result.

    Args:
        task: its input.
        batches: rows of one partition of the bus.
    """
    yield from done_on_executor(task, batches, HELD, begun, folded_partition)


def begun(task: ShardTask) -> ClustersShard:
    """Return a shard without any cluster."""
    return ClustersShard(task.tables, task.base)


def folded_partition(task: ShardTask, partition: int, rows: pa.Table, shard: ClustersShard) -> ShardResult:
    """Fold the rows of one partition, in the order of their offsets."""
    watch = Stopwatch()
    shard.begin(task)
    rows, reading = read_rows(task, partition, rows)
    sources = set(reading.consumed)
    shard.refused = Counter({source: count for source, count in task.refused.items() if source in sources})
    clusters = task.clusters_of(sources)
    shard.prepare(clusters | {each for each, home in task.homes.items() if home == partition})
    folded = shard.fold(rows, task, watch)
    computed = None
    if task.derived_before is not None:
        computed = derived(task.tables, shard.state, shard.own(task, partition), task.derived_before)
    watch.lap("projections")
    nothing: tuple[Adds, FoldedIncidents] = [], FoldedIncidents()
    added, incidents = _written(task, partition, shard, folded) if folded.decoded.positions else nothing
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


def _written(task: ShardTask, partition: int, shard: ClustersShard, folded: Folded) -> tuple[Adds, FoldedIncidents]:
    """Write the rows of a batch as those of the version that it will make, and take them over; follow incidents."""
    version = task.base + 1
    rows = in_commit(folded.rows, version, task.committed_at, partition * ROWS_OF_A_SHARD)
    added = list(written(task.tables / PARTITION_CHANGES.name, rows, file_layout(PARTITION_CHANGES)))
    shard.applied(folded, version)
    shard.state.count_removals(rows)
    return added, FoldedIncidents() if shard.incidents is None else shard.incidents.fold([(version, rows)])
