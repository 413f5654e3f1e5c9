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

import pickle
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.bus.kafka.reader import Consumed
from streaming.contracts.identifiers import NOWHERE, ClusterId, LogPosition
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.log import in_commit
from streaming.delta.incidents.table import IncidentRows
from streaming.delta.log.commit import written
from streaming.delta.log.definitions import file_layout
from streaming.delta.projections.of_clusters import ClustersState, derived, recovered
from streaming.delta.projections.shared_state import SharedState
from streaming.jobs.queries import Stopwatch
from streaming.jobs.shards.kafka_rows import Piece, as_bus_rows, piece_of, runs_of, with_foreign
from streaming.jobs.shards.shard import Shard
from streaming.runtime.memory import collected_after

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from streaming.changes.incidents.grouping import IncidentGaps
    from streaming.contracts.state import SourceState
    from streaming.delta.incidents.table import ChangedIncident
    from streaming.delta.projections.of_clusters import Adds, Derived, DerivedUpto
    from streaming.delta.store.place import Place
    from streaming.jobs.queries import BatchResult
    from streaming.jobs.shards.shard import Folded

ROWS_OF_A_SHARD: Final = 1 << 32
"""More than the rows of any commit: the ordinals of a shard begin at its number times this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What the derived tables have before a round.

    Attributes:
        upto: the versions up to which they are computed.
        files: of each cluster in ``partition_state``.
    """

    upto: DerivedUpto
    files: Mapping[ClusterId, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncidents:
    """The incidents that may still change at the version of a task, and how incidents are told apart."""

    gaps: IncidentGaps
    carried: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """What the driver says of a batch, to every shard.

    Attributes:
        tables: their place.
        topic: that is read.
        base: the version of the change log that the batch builds on.
        committed_at: the time of its commit, microseconds.
        tokens: by partition, of the newest result that is committed.
        begins: by partition, the offset from which on rows are applied, where that is not the first.
        applied: where the last applied record of each source stands.
        left: the log ids that were left, by source.
        refused: applied records that were refused and that no state of their source counts, by source.
        clusters: those that each source has reported of.
        projection: the derived tables are written as of ``base`` with this batch; None: they are not.
        incidents: None: another job folds them, or none.
    """

    tables: Place
    topic: str
    base: int
    committed_at: int
    tokens: Mapping[int, str] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)
    applied: Mapping[str, LogPosition] = field(default_factory=dict)
    left: Mapping[str, AbstractSet[int]] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    clusters: Mapping[str, frozenset[ClusterId]] = field(default_factory=dict)
    projection: Projection | None = None
    incidents: OpenIncidents | None = None

    def at(self, source: str) -> LogPosition:
        """Return where the last applied record of a source stands."""
        return self.applied.get(source, NOWHERE)

    def position(self, source: str) -> int:
        """Return the position of the last applied record of a source, -1 for none."""
        return self.at(source).position


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardResult:
    """What a shard has folded.

    Attributes:
        partition: of the bus.
        token: of this result.
        clusters: that its observations are of.
        added: files of ``partition_changes``.
        folded: what the batch changes, without its rows and its state.
        sources: the new state of sources.
        result: for the metrics of the job.
        piece: what was read: the runs of the logs, and where another log begins, without its rows.
        next_offset: of the row behind those that were applied.
        consumed: the end of each log.
        records: how many were read.
        size: their bytes.
        derived: of the clusters that the worker had before the batch; None where nothing was asked for.
        incidents: those that changed.
    """

    partition: int
    token: str
    clusters: frozenset[ClusterId]
    added: Adds
    positions: Mapping[str, int]
    log_ids: Mapping[str, int]
    unreported: Mapping[str, int]
    refused: Sequence[object]
    only_sources: bool
    sources: Sequence[SourceState]
    result: BatchResult
    piece: Piece
    next_offset: int
    consumed: Mapping[str, Consumed]
    records: int
    size: int
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
        self.token = ""  # until this task has ended: its state is half done if it fails

    def prepare(self, clusters: AbstractSet[ClusterId]) -> None:
        """Read the clusters that are not here; those that are, too, because a state is read as a whole."""
        if clusters <= self.clusters:
            return
        self.clusters |= clusters
        self.state = recovered(self._tables, self.shared.version, self.clusters)
        self.shared = self.state.shared
        if (told := self._open) is not None:
            self.incidents = IncidentRows(
                self._tables, told.gaps, self.shared.version, told.carried, clusters=self.clusters
            )


_shards: Final[dict[tuple[str, int], ClustersShard]] = {}
"""The shards of this worker, by tables and partition."""


def shard_of(task: ShardTask, partition: int) -> ClustersShard:
    """Return the shard of a partition at the version of a task; drop those that another worker has folded since."""
    tables = str(task.tables)
    for key, shard in list(_shards.items()):
        if key[0] == tables and shard.token != task.tokens.get(key[1]):
            del _shards[key]
    shard = _shards.setdefault((tables, partition), ClustersShard(task.tables, task.base))
    shard.begin(task)
    return shard


def fold_partitions(task: ShardTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold the rows of a task of Spark, which are of one partition of the bus; yield the result.

    Args:
        task: what the driver says of the batch.
        batches: rows as :func:`streaming.jobs.streams.kafka_source.kafka_stream` has them.
    """
    with collected_after():
        pieces = list(batches)
        if not pieces:
            return
        rows = pa.Table.from_batches(pieces)
        for partition in pc.unique(rows["partition"]).to_pylist():
            own = rows.filter(pc.equal(rows["partition"], partition)).sort_by("offset")
            yield packed(folded_partition(task, partition, own))


def folded_partition(task: ShardTask, partition: int, rows: pa.Table) -> ShardResult:
    """Fold the rows of one partition.

    Args:
        task: what the driver says of the batch.
        partition: of the bus.
        rows: in the order of their offsets.
    """
    watch, shard = Stopwatch(), shard_of(task, partition)
    rows = with_foreign(rows.filter(pc.greater_equal(rows["offset"], task.begins.get(partition, 0))), task.topic)
    piece = piece_of(rows, runs_of(rows), 0, task.at, lambda source: task.left.get(source, ()))
    sources = set(pc.unique(piece.rows["source"]).to_pylist())
    shard.refused = Counter({source: count for source, count in task.refused.items() if source in sources})
    shard.prepare({each for source in sources for each in task.clusters.get(source, ())})
    folded = shard.fold(as_bus_rows(piece.rows), task, watch)
    computed = None if task.projection is None else _derived(task, task.projection, shard)
    watch.lap("projections")
    added, incidents = _written(task, partition, shard, folded) if folded.decoded.positions else ([], [])
    watch.lap("write")
    shard.token = uuid.uuid4().hex
    return ShardResult(
        partition=partition,
        token=shard.token,
        clusters=frozenset(observed.cluster_id for observed in folded.decoded.observations),
        added=added,
        positions=folded.decoded.positions,
        log_ids=folded.decoded.log_ids,
        unreported=folded.unreported,
        refused=folded.refused,
        only_sources=folded.only_sources,
        sources=tuple(folded.touched.sources.values()),
        result=folded.result(task.base, watch),
        piece=piece._replace(rows=None),
        next_offset=_offset_after(rows, piece.end, task.begins.get(partition, 0)),
        consumed=_consumed(piece.rows, partition),
        records=len(piece.rows),
        size=pc.sum(pc.binary_length(piece.rows["payload"])).as_py() or 0,
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


def _derived(task: ShardTask, projection: Projection, shard: ClustersShard) -> Derived:
    return derived(task.tables, shard.state, shard.clusters, projection.upto, projection.files)


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


def _offset_after(rows: pa.Table, end: int, begin: int) -> int:
    """Return the offset of the row at ``end``, or behind the last one; ``begin`` if there are no rows."""
    if end < len(rows):
        return int(rows["offset"][end].as_py())
    return int(rows["offset"][-1].as_py()) + 1 if len(rows) else begin


def _consumed(rows: pa.Table, partition: int) -> dict[str, Consumed]:
    ends = rows.group_by("source").aggregate([("end", "max")])
    return {
        source: Consumed(partition, end)
        for source, end in zip(ends["source"].to_pylist(), ends["end_max"].to_pylist(), strict=True)
    }


# Results on their way to the driver: few and small, whatever the clusters.


RESULT: Final = "result"
RESULT_SCHEMA: Final = f"{RESULT} binary"


def packed(result: object) -> pa.RecordBatch:
    """Return a result as a row of its own, which only :func:`unpacked` of the same program reads."""
    return pa.RecordBatch.from_pydict({RESULT: pa.array([pickle.dumps(result)], pa.binary())})


def unpacked(rows: pa.Table) -> Iterator[object]:
    """Yield the results of rows."""
    for content in rows[RESULT].to_pylist():
        yield pickle.loads(content)  # noqa: S301 - from our own workers
