"""The input of tasks, and the rows that each reads from a partition of the bus. A directory has one partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streaming.bus.kafka.reader import Consumed
from streaming.contracts.identifiers import ClusterId, LogPosition
from streaming.jobs.shards.kafka_rows import LogRun, as_bus_rows, piece_of, runs_of, with_foreign

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from streaming.delta.quarantine import RefusedRecord
    from streaming.delta.store.place import Place
    from streaming.jobs.queries import BatchResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Input of every task of a batch.

    Attributes:
        tables: their place.
        topic: of the bus; None for a directory.
        tokens: by partition, the token of the newest committed result.
        opened: token of a state that was read from the tables and follows from no result yet.
        begins: by partition, the first offset to apply, unless it is that of the first row.
        applied: where the last applied record of each source is.
        left: the log ids that were left, by source.
        clusters: the clusters that each source has reported on.
        homes: the partition in which each cluster was applied last.
    """

    tables: Place
    topic: str | None = None
    tokens: Mapping[int, str] = field(default_factory=dict)
    opened: str = "opened"
    begins: Mapping[int, int] = field(default_factory=dict)
    applied: Mapping[str, LogPosition] = field(default_factory=dict)
    left: Mapping[str, AbstractSet[int]] = field(default_factory=dict)
    clusters: Mapping[str, AbstractSet[ClusterId]] = field(default_factory=dict)
    homes: Mapping[ClusterId, int] = field(default_factory=dict)

    def token(self, partition: int) -> str:
        """Return the token of the state of a partition that is valid now."""
        return self.tokens.get(partition, self.opened)

    @property
    def reported(self) -> set[ClusterId]:
        """The clusters of which a source has reported; of others the tables have nothing."""
        return set[ClusterId]().union(*self.clusters.values())

    def must_read(self, clusters: AbstractSet[ClusterId], here: set[ClusterId]) -> bool:
        """Add clusters to those whose state is here; return whether it must be read for that, as a whole.

        The tables have nothing about a cluster on which no source has reported before.
        """
        others, was_empty = clusters - here, not here
        here |= clusters
        return bool(others) and (was_empty or not self.reported.isdisjoint(others))

    def clusters_of(self, sources: AbstractSet[str]) -> set[ClusterId]:
        """Return the clusters that sources have reported on."""
        return {each for source in sources for each in self.clusters.get(source, ())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Account of the rows that were read from a partition.

    Attributes:
        partition: of the bus.
        newest, refused, other: as in :class:`streaming.jobs.shards.kafka_rows.Piece`.
        next_offset: of the row after those that were read.
        consumed: the end of each log.
        records: number of rows.
        size: their bytes.
    """

    partition: int
    newest: Mapping[str, LogRun] = field(default_factory=dict)
    refused: AbstractSet[LogRun] = frozenset()
    other: LogRun | None = None
    next_offset: int = 0
    consumed: Mapping[str, Consumed] = field(default_factory=dict)
    records: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """Result of a task; those of each channel add what they have written.

    Attributes:
        reading: what was read.
        token: names the result, and so the state that it leaves in the worker.
        clusters: of its sources and observations; the state follows from these alone.
        positions: newest position of each source.
        log_ids: of the logs that have one.
        refused: the records that were refused.
        result: for the metrics of the job.
    """

    reading: Reading
    token: str
    clusters: frozenset[ClusterId]
    positions: Mapping[str, int]
    log_ids: Mapping[str, int]
    refused: Sequence[RefusedRecord]
    result: BatchResult


def read_rows(task: Task, partition: int, rows: pa.Table) -> tuple[pa.Table, Reading]:
    """Return the rows of a partition that can be applied before a log is left, in the columns of the bus.

    All rows of a directory can: its logs are left only when a query starts. Rows are in the order of their offsets.
    """
    if task.topic is None:
        sources = pc.unique(rows["source"]).to_pylist()
        return rows, Reading(partition=partition, consumed={source: Consumed(partition, 0) for source in sources})
    begin = task.begins.get(partition, 0)
    rows = with_foreign(rows.filter(pc.greater_equal(rows["offset"], begin)), task.topic)
    piece = piece_of(rows, runs_of(rows), task.applied, task.left)
    ends = piece.rows.group_by("source").aggregate([("end", "max")])
    reading = Reading(
        partition=partition,
        newest=piece.newest,
        refused=piece.refused,
        other=piece.other,
        next_offset=_offset_after(rows, piece.end, begin),
        consumed={
            source: Consumed(partition, end)
            for source, end in zip(ends["source"].to_pylist(), ends["end_max"].to_pylist(), strict=True)
        },
        records=len(piece.rows),
        size=pc.sum(pc.binary_length(piece.rows["payload"])).as_py() or 0,
    )
    return as_bus_rows(piece.rows), reading


def _offset_after(rows: pa.Table, end: int, begin: int) -> int:
    """Return the offset of the row at ``end``, or after the last one; ``begin`` if there are no rows."""
    if end < len(rows):
        return int(rows["offset"][end].as_py())
    return int(rows["offset"][-1].as_py()) + 1 if len(rows) else begin


def by_partition(task: Task, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the number and the rows of each partition, in the order of their offsets."""
    if task.topic is None:
        yield 0, rows
        return
    for partition in pc.unique(rows["partition"]).to_pylist():
        yield partition, rows.filter(pc.equal(rows["partition"], partition)).sort_by("offset")
