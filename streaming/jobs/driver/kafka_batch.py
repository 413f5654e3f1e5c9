"""A batch of records of Kafka, as the rows of a bus that every query understands; offsets next to the positions."""

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

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streaming.bus.kafka.reader import Consumed, offset_name
from streaming.bus.kafka.records import topic_of
from streaming.bus.segments import goes_on_from
from streaming.contracts.identifiers import NOWHERE, LogPosition
from streaming.contracts.observations import Channel
from streaming.jobs.queries import BatchResult
from streaming.jobs.streams.bus_source import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streaming.bus.kafka.reader import KafkaReader
    from streaming.delta.log.positions import LastCommon

FOREIGN: Final = "no isrwatch collector has written this record"


class OffsetBatch(Protocol):
    """A batch whose commits hold offsets next to positions, and that can go back."""

    def apply(self, rows: pa.Table, offsets: Mapping[str, int]) -> BatchResult:
        """Apply rows; commit the offsets with them."""

    def at(self, source: str) -> LogPosition:
        """Return where the last applied record of a source stands."""

    def go_back(self, sources: Iterable[str], last_common: LastCommon) -> dict[str, LogPosition]:
        """Go back to the last record that both have."""

    def check_ours(self) -> None:
        """Check that no other writer has claimed the tables."""


class LogRun(NamedTuple):
    """A run of a log, as its records name it."""

    source: str
    log_id: int | None
    runs: tuple[int, ...]


class KafkaBatch:
    """Applies batches of one topic through the batch of a query."""

    def __init__(self, batch: OffsetBatch, channel: Channel, bus: KafkaReader) -> None:
        self._batch, self._channel, self._bus = batch, channel, bus
        self._topic = topic_of(bus.settings, channel)
        self._newest: dict[str, LogRun] = {}
        self._reported: set[tuple[str, int | None]] = set()

    def check_ours(self) -> None:
        """Check that no other writer has claimed the tables.

        Raises:
            TableRefused: another one has.
        """
        self._batch.check_ours()

    def apply(self, rows: pa.Table) -> BatchResult:
        """Apply rows as :func:`streaming.jobs.streams.kafka_source.kafka_stream` has them.

        Raises:
            IsrwatchError: the topic is not the one that the query began to read.
        """
        self._bus.check_same(self._channel)
        rows = _with_foreign(rows, self._topic)
        results = [self._applied(piece) for piece in self._pieces(rows)]
        self._note(rows)
        return _sum(results)

    def _pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield rows of logs that stay the same; go back before a row of another log. Refused rows are left out."""
        begin, refused = 0, set[LogRun]()
        runs = _runs_of(rows)
        positions = rows["position"].to_pylist()
        applied: dict[str, LogPosition] = {}
        last: tuple[LogRun, int] | None = None
        for index, (run, position) in enumerate(zip(runs, positions, strict=True)):
            if last is not None and run is last[0]:
                last = run, position
                continue
            if last is not None and last[0] not in refused:
                applied[last[0].source] = LogPosition(last[1], last[0].log_id)
            last = run, position
            if run.log_id in self._bus.left[self._channel, run.source]:
                refused.add(run)
                self._report_two(run)
                continue
            if self._is_another(run, position, applied.get(run.source) or self._batch.at(run.source)):
                yield _without(rows.slice(begin, index - begin), runs[begin:index], refused)
                begin = index
                self._leave(run)
            self._newest[run.source] = run
        yield _without(rows.slice(begin), runs[begin:], refused)

    @staticmethod
    def _is_another(run: LogRun, position: int, applied: LogPosition) -> bool:
        """Return whether a row is of another log than what was applied of its source."""
        if applied.log_id is None or run.log_id is None or applied.log_id in run.runs:
            return False
        is_next = bool(run.runs) and goes_on_from(run.runs[0], applied.log_id)
        return not (is_next and position > applied.position)

    def _leave(self, run: LogRun) -> None:
        """Go back for a log that is another one now."""
        before = self._newest.get(run.source)
        at = self._batch.at(run.source)
        left = {*(before.runs if before else ()), *([] if at.log_id is None else [at.log_id])}
        self._bus.left[self._channel, run.source] |= left - set(run.runs)
        self._batch.go_back([run.source], lambda _source, _at: NOWHERE)
        self._bus.report(
            f"the log {self._channel}/{run.source} on the bus was replaced, restored from a copy, or cut since it was "
            "read: it is read from its beginning; what the bus has lost meanwhile is recorded as missed"
        )

    def _report_two(self, run: LogRun) -> None:
        if (run.source, run.log_id) not in self._reported:
            self._reported.add((run.source, run.log_id))
            self._bus.report(
                f"two collectors ship the log {self._channel}/{run.source}: the records of the one that began first "
                "are refused; give each collector a name of its own (collect.collector), then start the job again"
            )

    def _applied(self, rows: pa.Table) -> BatchResult:
        """Apply rows of the bus with the offsets behind them."""
        identity = self._bus.identity(self._channel)
        offsets = {offset_name(self._topic, identity, number): offset for number, offset in _behind(rows).items()}
        return self._batch.apply(_as_bus_rows(_once(rows)), offsets)

    def _note(self, rows: pa.Table) -> None:
        """Note how far was read, for the lag."""
        logs = rows.group_by(["source", "partition"]).aggregate([("end", "max")]).to_pylist()
        self._bus.note(
            self._channel,
            {row["source"]: Consumed(row["partition"], row["end_max"]) for row in logs},
            _behind(rows),
            len(rows),
            pc.sum(pc.binary_length(rows["payload"])).as_py() or 0,
        )


def _behind(rows: pa.Table) -> dict[int, int]:
    """Return the offset behind the rows of each partition."""
    read = rows.group_by("partition").aggregate([("offset", "max")]).to_pylist()
    return {row["partition"]: row["offset_max"] + 1 for row in read}


def _with_foreign(rows: pa.Table, topic: str) -> pa.Table:
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


def _runs_of(rows: pa.Table) -> list[LogRun]:
    """Return the run of each row, one object for equal ones."""
    columns = (rows[name].to_pylist() for name in ("source", "log_id", "runs"))
    distinct: dict[tuple[str, int | None, str | None], LogRun] = {}
    of_rows: list[LogRun] = []
    for source, log_id, text in zip(*columns, strict=True):
        key = source, log_id, text
        if key not in distinct:
            distinct[key] = LogRun(source, log_id, _numbers(text))
        of_rows.append(distinct[key])
    return of_rows


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(int(number) for number in (text or "").split(",") if number.isdecimal())


def _without(rows: pa.Table, runs: list[LogRun], refused: set[LogRun]) -> pa.Table:
    if not refused:
        return rows
    return rows.filter(pa.array([run not in refused for run in runs], pa.bool_()))


def _once(rows: pa.Table) -> pa.Table:
    """Keep the first of the rows that stand at one position of one log."""
    numbered = rows.select(["source", "position"]).append_column("row", pa.array(range(len(rows)), pa.int64()))
    first = numbered.group_by(["source", "position"]).aggregate([("row", "min")])["row_min"]
    return rows if len(first) == len(rows) else rows.take(first.combine_chunks().sort())


def _as_bus_rows(rows: pa.Table) -> pa.Table:
    count = len(rows)
    columns = [rows[field.name] if field.name in _OF_BUS else pa.nulls(count, field.type) for field in SCHEMA]
    return pa.table(columns, schema=SCHEMA)


_OF_BUS: Final = frozenset({"source", "position", "payload", "damage", "log_id"})


def _sum(results: list[BatchResult]) -> BatchResult:
    if len(results) == 1:
        return results[0]
    reasons: defaultdict[str, int] = defaultdict(int)
    stages: defaultdict[str, float] = defaultdict(float)
    for each in results:
        for reason, count in each.reasons.items():
            reasons[reason] += count
        for stage, seconds in each.stages.items():
            stages[stage] += seconds
    return BatchResult(
        observations=sum(each.observations for each in results),
        changes=sum(each.changes for each in results),
        refused=sum(each.refused for each in results),
        version=results[-1].version,
        seconds=sum(each.seconds for each in results),
        stages=stages,
        reasons=reasons,
    )
