"""The bus as a Spark source: the only module that knows both.

Rows are those of :func:`bus_schema`. The offset is ``{source: position}``: a source without an entry is read from its
oldest position. The source deletes nothing: only the tables say what was applied.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import BusFrame, DamagedRange
from streaming.bus.segments import replaced
from streaming.contracts.identifiers import LogPosition
from streaming.contracts.observations import Channel
from streaming.jobs.streams.left_out_blocks import LeftOutBlocks, published_digests
from streaming.jobs.streams.sample_columns import BlockColumns, in_columns
from streaming.runtime.memory import freeze

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "isrwatch_bus"
_GIVEN: Final = "given"
# Without a trigger interval Spark asks for the latest offset again at once. While nothing is new the source delays its
# answer for this long and watches the bus, so that an idle query costs little and new records are read soon.
DEFAULT_WAIT_SECONDS: Final = 0.5
_TASKS: Final = 4  # of a full batch
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True)
class LogRange:
    """A piece of one log with the same log id."""

    source: str
    start: int
    end: int
    log_id: int | None


class BusPartition(InputPartition):
    """The pieces that one task reads: many small ones, or a large one."""

    def __init__(self, ranges: Sequence[LogRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def register(spark: SparkSession) -> None:
    """Register the format with a session."""
    spark.dataSource.register(BusDataSource)


def bus_stream(  # noqa: PLR0913 - what a reader is given
    spark: SparkSession,
    directory: Path,
    channel: Channel,
    starts: Mapping[str, LogPosition],
    max_bytes: int,
    *,
    repeated: Path | None = None,
    moved: Path | None = None,
    wait_seconds: float = DEFAULT_WAIT_SECONDS,
) -> DataFrame:
    """Return the records of a channel, in a session that knows the format; arguments as :class:`BusStreamReader`."""
    files = [None if each is None else str(each) for each in (repeated, moved)]
    given = [str(directory), channel, starts, max_bytes, *files, wait_seconds]
    return spark.readStream.format(FORMAT).option(_GIVEN, json.dumps(given)).load()


class BusDataSource(DataSource):
    """Spark's view of a bus directory."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns."""
        return bus_schema()

    def streamReader(self, schema: StructType) -> BusStreamReader:  # noqa: ARG002, N802 - Spark's signature
        """Return a reader for what :func:`bus_stream` was given."""
        directory, channel, starts, max_bytes, repeated, moved, wait_seconds = json.loads(self.options[_GIVEN])
        return BusStreamReader(
            Path(directory),
            Channel(channel),
            {source: LogPosition(*at) for source, at in starts.items()},
            max_bytes,
            repeated=None if repeated is None else Path(repeated),
            moved=None if moved is None else Path(moved),
            wait_seconds=wait_seconds,
        )


class BusStreamReader(DataSourceStreamReader):
    """Plans and reads the pieces of a bus. Planning and reading happen in different processes."""

    def __init__(  # noqa: PLR0913 - what a reader is given
        self,
        directory: Path,
        channel: Channel,
        starts: Mapping[str, LogPosition],
        max_bytes: int,
        *,
        repeated: Path | None = None,
        moved: Path | None = None,
        wait_seconds: float = DEFAULT_WAIT_SECONDS,
    ) -> None:
        """Begin at ``starts``, by source; other logs begin at their oldest record.

        ``repeated`` is the file with the digests of blocks to leave out (``left_out_blocks``); without it all are read.
        The time of the file ``moved`` shows when rows were read last. An empty batch waits for new records, unless the
        query has a trigger interval.
        """
        self._bus = DirectoryReader(directory)
        self._channel = channel
        self._max_bytes = max_bytes
        self._repeated, self._moved = repeated, moved
        self._wait_seconds = wait_seconds
        self._starting = dict(starts)
        # Ends of the last planned batch, which must be in the same logs when the next one is planned.
        self._planned = dict(self._starting)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return where the query has stopped; other logs start at their oldest position."""
        return {source: at.position for source, at in self._starting.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of one batch."""
        return ReadMaxBytes(self._max_bytes)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the ends of the logs, for Spark's progress report."""
        return dict(sorted(self._bus.end_positions(self._channel).items()))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the end of the next batch; wait for new records for a while."""
        ends = self._ends_with_news(start)
        self._check_continuity(start, ends)
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(start, ends)
        self._planned |= {source: LogPosition(end, self._log_id(source, end)) for source, end in ends.items()}
        return dict(sorted({**start, **ends}.items()))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Cut a batch into tasks."""
        self._check_continuity({}, end)
        pieces = [
            piece
            for source, upper in end.items()
            if (lower := self._lower(start, source)) < upper
            for piece in self._cut(source, lower, upper)
        ]
        return [BusPartition(group) for group in grouped(pieces, self._max_bytes // _TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the pieces of one task as Arrow batches, without blocks that repeat the state; samples as columns."""
        freeze_imports()
        published = None if self._repeated is None else published_digests(self._repeated)
        for piece in cast("BusPartition", partition).ranges:
            items = self._bus.read(self._channel, piece.source, piece.start, piece.end, piece.log_id)
            if published is not None:
                rows: Iterator[BusRow] = published.leave_out(items)
            else:
                rows = in_columns(items) if self._channel is Channel.SAMPLES else items
            for batch in arrow_batches(piece.source, rows, piece.log_id):
                yield batch
                self._note_read()

    def _note_read(self) -> None:
        if self._moved is not None:
            with suppress(OSError):  # it is for the health check alone
                self._moved.touch()

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: ``SupervisedQuery.delete_applied`` deletes, because the tables may lag behind the checkpoint."""

    def _ends_with_news(self, start: Mapping[str, int]) -> dict[str, int]:
        """Return the ends of the logs that have new records."""
        deadline = time.monotonic() + self._wait_seconds
        while True:
            ends = self._bus.end_positions(self._channel)
            new_ends = {source: end for source, end in ends.items() if end != self._lower(start, source)}
            if new_ends or time.monotonic() >= deadline:
                return new_ends
            while not self._bus.has_moved(self._channel):
                if time.monotonic() >= deadline:
                    return {}
                time.sleep(_POLL_SECONDS)

    def _lower(self, start: Mapping[str, int], source: str) -> int:
        """Return the position where reading a log begins."""
        return start[source] if source in start else self._bus.start_positions(self._channel).get(source, 0)

    def _limited(self, start: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        """Return the ends within the limit of a batch, of which each log gets an equal share."""
        share = self._max_bytes // max(len(ends), 1)
        return {source: self._within(source, self._lower(start, source), end, share) for source, end in ends.items()}

    def _within(self, source: str, start: int, end: int, share: int) -> int:
        """Return the last boundary of a frame within a share of a log, but at least the first."""
        if end - start <= share:
            return end
        near = self._bus.frame_start(self._channel, source, start, start + share)
        if near is not None:
            return near
        position = start
        for item in self._bus.read(self._channel, source, start, end):
            if item.end - start > share and position > start:
                break
            position = item.end
        return position

    def _cut(self, source: str, start: int, end: int) -> list[LogRange]:
        """Cut a range at the ends of segments, and into the share of a task."""
        bases = [segment.base for segment in self._bus.segments(self._channel, source)]
        bounds = [start, *(base for base in bases if start < base < end), end]
        return [
            each
            for lower, upper in pairwise(bounds)
            for each in self._cut_in_tasks(source, lower, upper, self._log_id(source, upper))
        ]

    def _log_id(self, source: str, end: int) -> int | None:
        """Return the log id of the segment that contains the bytes before a position."""
        log = self._bus.segments(self._channel, source)
        return next((segment.log_id for segment in reversed(log) if segment.base < end), None)

    def _check_continuity(self, start: Mapping[str, int], ends: Mapping[str, int]) -> None:
        """Raise ``IsrwatchError`` if a log was replaced, restored from a copy, or cut since the last planned batch."""
        for source, end in ends.items():
            planned = self._planned.get(source)
            is_other = planned is not None and not self._bus.is_in_log(self._channel, source, planned)
            if is_other or end < start.get(source, 0):
                raise replaced(self._channel, source)

    def _cut_in_tasks(self, source: str, start: int, end: int, log_id: int | None) -> Iterator[LogRange]:
        """Cut a piece of one segment; if no frame begins near a cut, the rest goes to one task."""
        size = self._max_bytes // _TASKS
        while end - start > size:
            near = self._bus.frame_start(self._channel, source, start, start + size)
            if near is None or near <= start:
                break
            yield LogRange(source, start, near, log_id)
            start = near
        yield LogRange(source, start, end, log_id)


@cache
def freeze_imports() -> None:
    """Exclude loaded modules from garbage collection, which a Spark worker runs after each task."""
    freeze()


def grouped(pieces: Iterable[LogRange], task_bytes: int) -> list[list[LogRange]]:
    """Group small pieces into one task: a task costs more than reading a megabyte."""
    groups: list[list[LogRange]] = []
    room = 0
    for piece in pieces:
        size = piece.end - piece.start
        if size > room:
            groups.append([])
            room = task_bytes
        groups[-1].append(piece)
        room -= size
    return groups


# Rows of the bus as Arrow, as the workers that read it pass them to Spark.


BusRow = BusFrame | DamagedRange | LeftOutBlocks | BlockColumns
"""A record, damage, or a row that replaces records."""


def bus_schema() -> StructType:
    """Return the columns of the bus: a record of ``source`` at ``position``, or damaged bytes and the damage.

    Two kinds of rows replace records: with ``left_out`` (``LeftOutBlocks``) consecutive blocks that repeat the state,
    with ``samples`` (``BlockColumns``) a block. ``log_id`` is that of the log; null if it has none.
    """
    left_out = {"start": LongType(), "end": LongType(), "generation": LongType(), "places": BinaryType()}
    return StructType([
        StructField("source", StringType(), nullable=False),
        StructField("position", LongType(), nullable=False),
        StructField("payload", BinaryType(), nullable=False),
        StructField("damage", StringType()),
        StructField("left_out", StructType([StructField(name, kind) for name, kind in left_out.items()])),
        StructField("samples", BinaryType()),
        StructField("log_id", LongType()),
    ])  # fmt: skip


_ROWS_PER_BATCH: Final = 10_000
_LEFT_OUT: Final = {"start": pa.int64(), "end": pa.int64(), "generation": pa.int64(), "places": pa.binary()}
_TYPES: Final = (
    pa.string(),
    pa.int64(),
    pa.binary(),
    pa.string(),
    pa.struct(_LEFT_OUT.items()),
    pa.binary(),
    pa.int64(),
)
SCHEMA: Final = pa.schema([
    pa.field(field.name, kind, field.nullable) for field, kind in zip(bus_schema(), _TYPES, strict=True)
])  # fmt: skip
""":func:`bus_schema` in Arrow."""


def arrow_batches(source: str, items: Iterable[BusRow], log_id: int | None = None) -> Iterator[pa.RecordBatch]:
    """Return rows of one log, with the same log id, as batches of ``SCHEMA``."""
    rows = iter(items)
    while batch := list(islice(rows, _ROWS_PER_BATCH)):
        columns = zip(*map(_columns, batch), strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, _TYPES[1:-1], strict=True)]
        constant = pa.repeat(pa.scalar(source), len(batch)), pa.repeat(pa.scalar(log_id, pa.int64()), len(batch))
        yield pa.RecordBatch.from_arrays([constant[0], *arrays, constant[1]], schema=SCHEMA)


def _columns(item: BusRow) -> tuple[Any, ...]:
    """Return the columns between source and log id."""
    match item:
        case BlockColumns():
            return item.position, b"", None, None, item.samples
        case LeftOutBlocks():
            return item.position, item.payload, None, item[2:], None
        case DamagedRange():
            return item.position, item.raw, item.reason, None, None
        case _:
            return item.position, item.payload, None, None, None
