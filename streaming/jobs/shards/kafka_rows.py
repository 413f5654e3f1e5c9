"""Rows of a topic: of which run of which log each is, and where another log begins. Knows Arrow, no Spark."""

# Theory of operation
#
# Rows of a topic come at least once: a shipper repeats what was not acknowledged, and the job reads a batch again after
# a crash. Those of one log come the first time in their order, from one partition. So what is new is what stands behind
# the applied position of its log, as for the directory: nothing here decides that (``decoded_batch.fresh_rows``). Here
# is decided whether a log is still the one that was applied:
#
#   - a record says which runs of its log its shipper knows. If the applied record is of one of them, or of the one that
#     the oldest of them continues, it is the same log;
#   - else it was replaced, restored or cut. Everything before that row is applied, the query goes back (as at its start
#     for the directory), and the row is the first of the new log;
#   - unless the log is one that was left before, in this process: then two collectors have one name, and their records
#     alternate. Those of the log that was left are refused, and that is said; the other log continues.
#
# Offsets. With the changes of a batch the offsets behind it are committed, so after a crash reading continues there.
# The tables of samples are many, each with commits of its own: ``source_progress`` holds their offsets, with the
# positions that go with them. What was applied since it was written comes again, and changes nothing.

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming.bus.segments import goes_on_from
from streaming.contracts.identifiers import LogPosition
from streaming.jobs.streams.bus_source import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

FOREIGN: Final = "no isrwatch collector has written this record"
_OF_BUS: Final = frozenset({"source", "position", "payload", "damage", "log_id"})


class LogRun(NamedTuple):
    """A run of a log, as its records name it."""

    source: str
    log_id: int | None
    runs: tuple[int, ...]


class Piece(NamedTuple):
    """Rows of logs that stay the same.

    Attributes:
        rows: without those of logs that were left.
        newest: the newest run of each log in them, by source.
        refused: the runs of logs that were left before: two collectors have one name.
        end: how many rows of the batch are in it, and before it.
        other: the run of another log, whose first row is behind it; None: the batch ends there.
    """

    rows: pa.Table
    newest: dict[str, LogRun]
    refused: set[LogRun]
    end: int
    other: LogRun | None


def piece_of(
    rows: pa.Table,
    runs: Sequence[LogRun],
    begin: int,
    at: Callable[[str], LogPosition],
    left: Callable[[str], Collection[int]],
) -> Piece:
    """Return the rows from one on that can be applied before a log is left.

    Args:
        rows: of a batch.
        runs: of each row.
        begin: the first row.
        at: where the last applied record of a source stands.
        left: the log ids of a source that were left.
    """
    newest, refused, applied = dict[str, LogRun](), set[LogRun](), dict[str, LogPosition]()
    last: tuple[LogRun, int] | None = None
    end, other = len(runs), None
    positions = rows["position"].slice(begin).to_pylist()
    for index, (run, position) in enumerate(zip(runs[begin:], positions, strict=True), begin):
        if last is not None and run is not last[0] and last[0] not in refused:
            applied[last[0].source] = LogPosition(last[1], last[0].log_id)
        if last is None or run is not last[0]:
            if run.log_id in left(run.source):
                refused.add(run)
            elif _is_another(run, position, applied.get(run.source) or at(run.source)):
                end, other = index, run
                break
            else:
                newest[run.source] = run
        last = run, position
    return Piece(_without(rows.slice(begin, end - begin), runs[begin:end], refused), newest, refused, end, other)


def _is_another(run: LogRun, position: int, applied: LogPosition) -> bool:
    """Return whether a row is of another log than what was applied of its source."""
    if applied.log_id is None or run.log_id is None or applied.log_id in run.runs:
        return False
    is_next = bool(run.runs) and goes_on_from(run.runs[0], applied.log_id)
    return not (is_next and position > applied.position)


def with_foreign(rows: pa.Table, topic: str) -> pa.Table:
    """Give records that no shipper has written a source and a position of their own: they come into quarantine."""
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
    """Return the run of each row, one object for equal ones."""
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
    """Return rows in the columns of the bus, the first row of each position of a log."""
    rows = _once(rows)
    count = len(rows)
    columns = [rows[field.name] if field.name in _OF_BUS else pa.nulls(count, field.type) for field in SCHEMA]
    return pa.table(columns, schema=SCHEMA)


def _once(rows: pa.Table) -> pa.Table:
    numbered = rows.select(["source", "position"]).append_column("row", pa.array(range(len(rows)), pa.int64()))
    first = numbered.group_by(["source", "position"]).aggregate([("row", "min")])["row_min"]
    return rows if len(first) == len(rows) else rows.take(first.combine_chunks().sort())
