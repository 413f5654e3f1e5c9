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
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from streaming.changes.fold import fold
from streaming.changes.sources import newest_of
from streaming.changes.state import Change
from streaming.changes.tombstones import without_expired
from streaming.contracts.blocks import PartitionsBlock
from streaming.contracts.events import Subject
from streaming.contracts.observations import CauseRevised, Channel, ConfigObserved, PartitionObserved, TopicRemoved
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.log import changes_to_arrow, in_commit
from streaming.delta.incidents.table import Continued, FoldedIncidents, IncidentRows
from streaming.delta.log.commit import written
from streaming.delta.log.definitions import file_layout
from streaming.delta.projections.clusters_state import ClustersState
from streaming.delta.projections.of_clusters import Derived, derived, recovered
from streaming.delta.quarantine import missing
from streaming.jobs.queries import BatchResult, Stopwatch, count_reasons
from streaming.jobs.shards.decoded_batch import RepeatedBlocks, decode_batch
from streaming.jobs.shards.reading import Task, TaskResult, read_rows
from streaming.jobs.shards.workers import InDriver, Keeper, OnExecutors, Worker, packed, ran
from streaming.movement import noted
from streaming.runtime.memory import never_collected

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    import pyarrow as pa

    from streaming.changes.incidents.grouping import IncidentGaps
    from streaming.changes.state import FoldResult, ReplicationState, TopicKey
    from streaming.contracts.identifiers import ClusterId, TopicId
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import SourceState
    from streaming.delta.log.cluster_files import Adds
    from streaming.delta.projections.of_clusters import Derived, DerivedBefore
    from streaming.jobs.shards.decoded_batch import DecodedBatch, ReadLog


ROWS_OF_A_SHARD: Final = 1 << 32
"""More than the rows of any commit: the ordinals of a shard begin at its number times this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncidents:
    """Input of the fold of incidents to continue at the version of a task, and the gaps between incidents."""

    gaps: IncidentGaps
    continued: Continued


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask(Task):
    """Input of a task on replication.

    Attributes:
        base: the version of the change log that the batch builds on.
        committed_at: the time of its commit, microseconds.
        refused: records in quarantine that no state of their source counts, by source.
        derived_before: the derived tables are computed as of ``base`` with this batch; None: they are not.
        incidents: None: another job folds them, or none.
    """

    base: int
    committed_at: int
    refused: Mapping[str, int] = field(default_factory=dict)
    derived_before: DerivedBefore | None = None
    incidents: OpenIncidents | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardResult(TaskResult):
    """Result of a task on replication.

    Attributes:
        added: files of ``partition_changes``.
        unreported: refused records that no state of their source counts, by source.
        only_sources: nothing changed except how far sources were read.
        sources: the new state of sources.
        derived: of the clusters that the worker had before the batch; None if nothing was requested.
        incidents: those that changed, and what their numbers follow from.
    """

    added: Adds
    unreported: Mapping[str, int]
    only_sources: bool
    sources: Sequence[SourceState]
    derived: Derived | None
    incidents: FoldedIncidents


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Changes of one batch, before they are committed.

    Attributes:
        rows: of ``partition_changes``, without the columns that the commit adds.
        touched: the changed part of the state.
        decoded: what was read.
        unreported: refused records that no state of their source counts, by source.
        changes: number of changes.
        only_sources: nothing changed except how far sources were read.
    """

    rows: pa.Table
    touched: ReplicationState
    decoded: DecodedBatch
    unreported: Mapping[str, int]
    changes: int
    only_sources: bool


class Shard(Keeper[ShardTask]):
    """Whole clusters: folds the batches of a partition. The only owner of the state of its clusters.

    ``refused`` is, by source, the number of refused records that its state does not count.
    """

    def __init__(self, task: ShardTask, read: ReadLog | None = None, published: Path | None = None) -> None:
        """Begin without any cluster, as of the version of a task.

        ``read`` reads blocks of a log that workers left out; ``published`` is the file with their digests, None if none
        are.
        """
        super().__init__()
        self.held, self.refused = ClustersState(version=task.base), Counter[str]()
        self.repeated, self._read = RepeatedBlocks(published), read
        self._incidents: IncidentRows | None = None

    def prepare(self, task: ShardTask, clusters: AbstractSet[ClusterId]) -> None:
        """Read the state of all clusters, and their incidents, if one of them is missing here."""
        if not task.must_read(clusters, self.clusters):
            return
        with never_collected():
            self.held = recovered(task.tables, task.base, self.clusters)
        if (incidents := task.incidents) is not None:
            self._incidents = IncidentRows(
                task.tables, incidents.gaps, task.base, incidents.continued, clusters=self.clusters
            )

    def fold(self, rows: pa.Table, task: ShardTask, watch: Stopwatch) -> Folded:
        """Fold one batch of rows, as in ``bus_source.SCHEMA``; :meth:`write` applies what changes."""
        decoded = decode_batch(rows, task.applied, self.repeated, self._read)
        watch.lap("decode")
        self.prepare(task, {observed.cluster_id for observed in decoded.observations})
        state = self.held.state
        state.load(set(_topics_of(decoded.observations, state.topic_ids)))
        folded = without_expired(state, fold(state, noted(decoded.observations)))
        watch.lap("fold")
        news = missing(task.tables, Channel.REPLICATION, decoded.refused)
        self.refused.update(record.source for record in news)
        unreported = set(self.refused)
        steps = (*folded.changes, *self._of_refused_only(folded, decoded.positions))
        changes = [self._with_position(change, decoded) for change in steps]
        for change in changes:
            if change.source_after is not None:
                folded.touched.sources[change.source_after.cluster_id, change.source_after.source] = change.source_after
        return Folded(
            rows=changes_to_arrow(changes),
            touched=folded.touched,
            decoded=decoded,
            unreported={source: self.refused[source] for source in unreported},
            changes=sum(change.count for change in folded.changes),
            only_sources=all(change.subject is Subject.SOURCE for change in changes),
        )

    def write(self, folded: Folded, task: ShardTask, partition: int) -> tuple[Adds, FoldedIncidents]:
        """Write the changes as rows of the version that the batch will make, and apply them; follow incidents."""
        version = task.base + 1
        rows = in_commit(folded.rows, version, task.committed_at, partition * ROWS_OF_A_SHARD)
        added = list(written(task.tables / PARTITION_CHANGES.name, rows, file_layout(PARTITION_CHANGES)))
        self.held.applied(folded.touched, version)
        self.held.count_removals(rows)
        self.repeated.learn(folded.decoded.blocks, folded.touched, self.held.state)
        return added, FoldedIncidents() if self._incidents is None else self._incidents.fold([(version, rows)])

    def _of_refused_only(self, folded: FoldResult, positions: Mapping[str, int]) -> Iterator[Change]:
        """Yield a change for each source whose records in this batch were all refused, to move its position and count.

        Refused records have no time, so the change has the time of the source's newest applied observation.
        """
        observed = {change.source_after.source for change in folded.changes if change.source_after is not None}
        for source in self.held.state.sources.values():
            if source.source in positions and source.source not in observed:
                yield Change(subject=Subject.SOURCE, observation=newest_of(source), source_after=source)

    def _with_position(self, change: Change, decoded: DecodedBatch) -> Change:
        """Add position and refused records to the state of a source, which the fold does not know."""
        after = change.source_after
        if change.subject is not Subject.SOURCE or after is None:
            return change
        quarantined = after.quarantined + self.refused.pop(after.source, 0)
        if after.source in decoded.positions:
            position, log_id = decoded.positions[after.source], decoded.log_ids.get(after.source)
            after = after._replace(position=position, log_id=log_id)
        return replace(change, source_after=after._replace(quarantined=quarantined))


def _topics_of(
    observations: Iterable[Observation], topic_ids: Mapping[tuple[ClusterId, str], TopicId]
) -> Iterator[TopicKey]:
    """Yield the topics whose partitions a fold will look up; ``topic_ids`` are by cluster and name."""
    for observed in observations:
        if isinstance(observed, PartitionObserved | PartitionsBlock | CauseRevised | TopicRemoved):
            yield observed.cluster_id, observed.topic_id
        elif isinstance(observed, ConfigObserved):
            topic_id = topic_ids.get((observed.cluster_id, observed.topic))
            if topic_id is not None:
                yield observed.cluster_id, topic_id


def folded_partition(task: ShardTask, partition: int, rows: pa.Table, shard: Shard) -> ShardResult:
    """Fold the rows of one partition, ordered by offset."""
    watch = Stopwatch()
    rows, reading = read_rows(task, partition, rows)
    sources = set(reading.consumed)
    shard.held.version = task.base  # what was committed since the last task has changed nothing of these clusters
    shard.refused = Counter({source: count for source, count in task.refused.items() if source in sources})
    clusters = task.clusters_of(sources)
    shard.prepare(task, clusters | {each for each, home in task.homes.items() if home == partition})
    folded = shard.fold(rows, task, watch)
    decoded, computed = folded.decoded, None
    if task.derived_before is not None:
        computed = derived(task.tables, shard.held, shard.own(task, partition), task.derived_before)
    watch.lap("projections")
    nothing: tuple[Adds, FoldedIncidents] = [], FoldedIncidents()
    added, incidents = shard.write(folded, task, partition) if decoded.positions else nothing
    watch.lap("write")
    shard.token = uuid.uuid4().hex
    return ShardResult(
        reading=reading,
        token=shard.token,
        clusters=frozenset(clusters | {observed.cluster_id for observed in decoded.observations}),
        positions=decoded.positions,
        log_ids=decoded.log_ids,
        refused=decoded.refused,
        result=BatchResult(
            observations=decoded.count,
            changes=folded.changes,
            refused=len(decoded.refused),
            version=task.base,
            seconds=watch.seconds,
            stages=watch.stages,
            reasons=count_reasons(decoded.refused),
        ),
        added=added,
        unreported=folded.unreported,
        only_sources=folded.only_sources,
        sources=tuple(folded.touched.sources.values()),
        derived=computed,
        incidents=incidents,
    )


EXECUTOR: Final = Worker(Shard, folded_partition)
"""This process, if it is a Python worker of Spark."""


def fold_partitions(task: ShardTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold the rows of one partition of the bus in a task of Spark; yield the result."""
    yield from EXECUTOR.done_on_executor(task, batches)


# Workers that fold and compute the derived tables: the driver behind its batches, executors with theirs.
#
# The driver has the state of every cluster, so a thread behind the batches computes rounds from copies of it. Executors
# compute a round with the rows of a batch, because only then does a worker have the state at hand; they read clusters
# without rows from the tables.


_OVERDUE: Final = 3
_GROUPS: Final = 4
"""Number of tasks for the clusters without rows in a batch."""


class FoldInDriver(InDriver[ShardTask, Shard, ShardResult]):
    """This process folds.

    Attributes:
        derive_in_batches: a round of the derived tables comes with a batch.
        rest_seconds: between two rounds after steps.
        patience: after so many times that long, a round without a batch is due.
    """

    derive_in_batches, rest_seconds, patience = False, 0.0, 1

    def __init__(self, read: ReadLog | None = None, published: Path | None = None) -> None:
        """Begin without any state; ``read`` and ``published`` are as of :class:`Shard`."""
        super().__init__(lambda task: Shard(task, read, published), folded_partition)

    def deriving(
        self, task: ShardTask, before: DerivedBefore, clusters: AbstractSet[ClusterId]
    ) -> Callable[[], list[Derived]]:
        """Return what computes the derived tables of clusters as of the version of a task, whatever is folded since.

        It copies the state of now, or reads it now: the tables have no older version of how far sources were applied.
        """
        states: list[tuple[ClustersState, AbstractSet[ClusterId]]] = []
        for (_, partition), shard in self.shards.items():
            own = shard.own(task, partition) & clusters if shard.token == task.token(partition) else frozenset()
            if own:
                states.append((shard.held.copied(task.base), own))
        if others := set(clusters).difference(*(own for _, own in states)):
            states.append((recovered(task.tables, task.base, others), others))
        return lambda: [derived(task.tables, state, own, before) for state, own in states]


class FoldOnExecutors(OnExecutors[ShardTask, ShardResult]):
    """Spark's executors fold. Attributes: as of :class:`FoldInDriver`."""

    derive_in_batches, patience = True, _OVERDUE

    def __init__(self, rest_seconds: float = 1.0, spark: SparkSession | None = None) -> None:
        """Begin, by default with the running session; derived tables rest between two rounds after steps."""
        super().__init__(fold_partitions)
        self.rest_seconds, self._spark = rest_seconds, spark

    def deriving(
        self, task: ShardTask, before: DerivedBefore, clusters: AbstractSet[ClusterId]
    ) -> Callable[[], list[Derived]]:
        """Compute the derived tables of clusters without rows at once; return a function that gives them."""
        others = sorted(clusters)
        groups = [others[number::_GROUPS] for number in range(min(_GROUPS, len(others)))]
        computed: list[Derived] = []
        if groups:
            spark = self._spark or SparkSession.builder.getOrCreate()
            numbers = spark.range(0, len(groups), 1, len(groups))
            computed = ran(numbers, partial(derive_groups, task, before, groups))
        return lambda: computed


FoldWorkers = FoldInDriver | FoldOnExecutors


def derive_groups(
    task: ShardTask, before: DerivedBefore, groups: Sequence[Collection[ClusterId]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compute the derived tables of clusters without rows in a batch; yield the result of each group.

    The rows of the batches have the ``id`` of a group each.
    """
    for batch in batches:
        for number in batch["id"].to_pylist():
            clusters = groups[number]
            yield packed(derived(task.tables, recovered(task.tables, task.base, clusters), clusters, before))
