"""The input of tasks, and the rows that each reads from a partition of the bus. A directory has one partition.

Of rows of a topic it knows the log and the run of each, and where another log begins. Knows Arrow, no Spark.
"""

# Theory of operation
#
# Rows of a topic arrive at least once: a shipper repeats records that were not acknowledged, and the job reads a batch
# again after a crash. The rows of one log first arrive in order, from one partition. So rows after the applied position
# of their log are new, as for the directory (``decoded_batch.fresh_rows``). This module decides whether a log is still
# the one that was applied:
#
#   - a record says which runs of its log its shipper knows. If the applied record is from one of them, or from the run
#     that the oldest of them continues, it is the same log; so is a record of the run before that comes late;
#   - else the log was replaced, restored or cut. The job applies everything before that row, the query goes back (as
#     for the directory when it starts), and the row is the first of the new log;
#   - unless this process has left that log before: then two collectors have the same name, and their records alternate.
#     The job refuses and reports those of the log that it left; the other log continues. If they name it as a part of
#     their own, there is one collector: old records were read again, as of a topic with another id.
#
# Offsets. The commit of a batch contains the offsets after it, so after a crash reading continues there. Samples have
# many tables with separate commits, so ``source_progress`` holds their offsets and positions. Records that were applied
# after it was written are read again, and change nothing.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming.bus.kafka.reader import Consumed
from streaming.bus.segments import goes_on_from
from streaming.contracts.identifiers import NOWHERE, ClusterId, LogPosition
from streaming.jobs.streams.bus_source import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
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
        """The clusters that a source has reported on; the tables have nothing about others."""
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
        newest, refused, other: as in :class:`streaming.jobs.shards.reading.Piece`.
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

    All rows of a directory can: its logs are left only when a query starts. Rows are ordered by offset.
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
    """Yield the number and the rows of each partition, ordered by offset."""
    if task.topic is None:
        yield 0, rows
        return
    for partition in pc.unique(rows["partition"]).to_pylist():
        yield partition, rows.filter(pc.equal(rows["partition"], partition)).sort_by("offset")


# Rows of a topic: the log and the run of each, and where another log begins.


FOREIGN: Final = "no isrwatch collector has written this record"
_OF_BUS: Final = frozenset({"source", "position", "payload", "damage", "log_id"})


class LogRun(NamedTuple):
    """A run of a log, as its records name it."""

    source: str
    log_id: int | None
    runs: tuple[int, ...]


class Piece(NamedTuple):
    """Rows up to the first one of another log.

    Attributes:
        rows: without those of logs that were left.
        newest: the newest run of each log, by source.
        refused: the runs of logs that were left before, because two collectors have the same name.
        end: index of the row after the piece.
        other: the run of that row, which is of another log; None at the end of the batch.
    """

    rows: pa.Table
    newest: dict[str, LogRun]
    refused: set[LogRun]
    end: int
    other: LogRun | None


def piece_of(
    rows: pa.Table, runs: Sequence[LogRun], at: Mapping[str, LogPosition], left: Mapping[str, Collection[int]]
) -> Piece:
    """Return the rows of a batch, each of a run, that can be applied before a log is left.

    ``at`` is where the last applied record of each source is, ``left`` has the log ids that were left, by source.
    """
    newest, refused, applied = dict[str, LogRun](), set[LogRun](), dict(at)
    last: tuple[LogRun, int] | None = None
    end, other = len(runs), None
    for index, (run, position) in enumerate(zip(runs, rows["position"].to_pylist(), strict=True)):
        if last is not None and run is not last[0] and last[0] not in refused:
            applied[last[0].source] = LogPosition(last[1], last[0].log_id)
        if last is None or run is not last[0]:
            if _comes_late(run, position, applied.get(run.source, NOWHERE)):
                continue  # it was applied
            is_left = run.log_id in left.get(run.source, ())
            if is_left and applied.get(run.source, NOWHERE).log_id not in run.runs:
                refused.add(run)
            elif _is_another(run, position, applied.get(run.source, NOWHERE)):
                end, other = index, run
                break
            else:
                newest[run.source] = run
        last = run, position
    return Piece(_without(rows.slice(0, end), runs[:end], refused), newest, refused, end, other)


def _is_another(run: LogRun, position: int, applied: LogPosition) -> bool:
    """Return whether a row is from another log than the last applied record of its source."""
    if applied.log_id is None or run.log_id is None or applied.log_id in run.runs:
        return False
    is_next = bool(run.runs) and goes_on_from(run.runs[0], applied.log_id)
    return not (is_next and position > applied.position)


def _comes_late(run: LogRun, position: int, applied: LogPosition) -> bool:
    """Return whether a row is a repeated one of the run before the last applied record: a broker hung meanwhile."""
    return position <= applied.position and goes_on_from(applied.log_id, run.log_id)


def with_foreign(rows: pa.Table, topic: str) -> pa.Table:
    """Give records that no shipper has written a source and a position, so that they can be quarantined."""
    is_ours = pc.and_(
        pc.and_(rows["source"].is_valid(), rows["position"].is_valid()),
        pc.and_(rows["end"].is_valid(), rows["log_id"].is_valid()),
    )
    if pc.all(is_ours).as_py() is not False:
        return rows
    places = pc.binary_join_element_wise(f"kafka:{topic}", pc.cast(rows["partition"], pa.string()), "/")
    replaced = {
        "source": pc.if_else(is_ours, rows["source"], places),
        "position": pc.if_else(is_ours, rows["position"], rows["offset"]),
        "end": pc.if_else(is_ours, rows["end"], pc.add(rows["offset"], 1)),
        "log_id": pc.if_else(is_ours, rows["log_id"], pa.scalar(None, pa.int64())),
        "damage": pc.if_else(is_ours, rows["damage"], FOREIGN),
    }
    return pa.table({name: replaced.get(name, rows[name]) for name in rows.column_names})


def runs_of(rows: pa.Table) -> list[LogRun]:
    """Return the run of each row; equal runs are one object."""
    columns = (rows[name].to_pylist() for name in ("source", "log_id", "runs"))
    distinct: dict[tuple[str, int | None, str | None], LogRun] = {}
    of_rows: list[LogRun] = []
    for key in zip(*columns, strict=True):
        if key not in distinct:
            distinct[key] = LogRun(key[0], key[1], _numbers(key[2]))
        of_rows.append(distinct[key])
    return of_rows


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(int(number) for number in (text or "").split(",") if number.isdecimal())


def _without(rows: pa.Table, runs: Sequence[LogRun], refused: set[LogRun]) -> pa.Table:
    if not refused:
        return rows
    return rows.filter(pa.array([run not in refused for run in runs], pa.bool_()))


def as_bus_rows(rows: pa.Table) -> pa.Table:
    """Return the first row of each position of a log, in the columns of the bus."""
    rows = _once(rows)
    count = len(rows)
    columns = [rows[field.name] if field.name in _OF_BUS else pa.nulls(count, field.type) for field in SCHEMA]
    return pa.table(columns, schema=SCHEMA)


def _once(rows: pa.Table) -> pa.Table:
    numbered = rows.select(["source", "position"]).append_column("row", pa.array(range(len(rows)), pa.int64()))
    first = numbered.group_by(["source", "position"]).aggregate([("row", "min")])["row_min"]
    return rows if len(first) == len(rows) else rows.take(first.combine_chunks().sort())
