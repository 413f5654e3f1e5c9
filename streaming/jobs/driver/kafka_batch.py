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

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streaming.bus.kafka.reader import Consumed, offset_name
from streaming.bus.kafka.records import topic_of
from streaming.contracts.identifiers import NOWHERE, LogPosition
from streaming.contracts.observations import Channel
from streaming.jobs.queries import BatchResult, summed
from streaming.jobs.shards.kafka_rows import LogRun, as_bus_rows, piece_of, runs_of, with_foreign

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streaming.bus.kafka.reader import KafkaReader
    from streaming.delta.log.positions import LastCommon


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


class KafkaBatch:
    """Applies batches of one topic through the batch of a query."""

    def __init__(self, batch: OffsetBatch, channel: Channel, bus: KafkaReader) -> None:
        self._batch, self._channel, self._bus = batch, channel, bus
        self._topic = topic_of(bus.settings, channel)
        self._newest: dict[str, LogRun] = {}

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
        rows = with_foreign(rows, self._topic)
        results = [self._applied(piece) for piece in self._pieces(rows)]
        self._note(rows)
        return summed(results)

    def _pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Yield rows of logs that stay the same; go back before a row of another log."""
        runs, begin = runs_of(rows), 0
        while True:
            piece = piece_of(rows, runs, begin, self._batch.at, lambda source: self._bus.left[self._channel, source])
            self._newest |= piece.newest
            for run in piece.refused:
                self._bus.report_two(self._channel, run.source, run.log_id)
            yield piece.rows
            if piece.other is None:
                return
            self._leave(piece.other)
            begin = piece.end

    def _leave(self, run: LogRun) -> None:
        """Go back for a log that is another one now."""
        before, at = self._newest.get(run.source), self._batch.at(run.source)
        self._bus.leave(self._channel, run.source, () if before is None else before.runs, at, run.runs)
        self._batch.go_back([run.source], lambda _source, _at: NOWHERE)

    def _applied(self, rows: pa.Table) -> BatchResult:
        """Apply rows of the bus with the offsets behind them."""
        identity = self._bus.identity(self._channel)
        offsets = {offset_name(self._topic, identity, number): offset for number, offset in _behind(rows).items()}
        return self._batch.apply(as_bus_rows(rows), offsets)

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
