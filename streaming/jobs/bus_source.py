"""The bus as a Spark source: the one place where bus and Spark meet.

    bus_source.register(spark)
    spark.readStream.format("isrwatch_bus").option("directory", …).option("channel", "replication").load()

Rows are those of ``schemas.bus_schema``. The offset is ``{source: position}``: a source that it does not name is read
from the oldest position that is kept. Nothing is deleted here: only the tables know what is safe.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import Damaged
from streaming.contracts.observations import Channel
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.schemas import bus_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from streaming.bus.frames import Frame

FORMAT: Final = "isrwatch_bus"
DIRECTORY: Final = "directory"
CHANNEL: Final = "channel"
MAX_BYTES: Final = "maxBytesPerTrigger"
DEFAULT_MAX_BYTES: Final = 32 * 1024 * 1024

_TASKS: Final = 4  # of a full batch
_ROWS_PER_BATCH: Final = 10_000
# With a zero trigger interval Spark asks again at once. An idle answer waits this long for news, and looks this often.
_IDLE_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 0.01


@dataclass(frozen=True)
class LogRange:
    """A piece of one log."""

    source: str
    start: int
    end: int


class BusPartition(InputPartition):
    """What one task reads: many small pieces, or one large one."""

    def __init__(self, ranges: Sequence[LogRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


class BusDataSource(DataSource):
    """Spark's view of a bus directory. Options: ``directory``, ``channel``, ``maxBytesPerTrigger``."""

    @classmethod
    def name(cls) -> str:
        """Name the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Give the columns."""
        return bus_schema()

    def streamReader(self, schema: StructType) -> BusStreamReader:  # noqa: ARG002, N802 - Spark's signature
        """Make a reader.

        Raises:
            ConfigurationError: an option is missing or wrong.
        """
        return BusStreamReader(**checked_options(self.options))


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(BusDataSource)


def checked_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Check the options of a source.

    Raises:
        ConfigurationError: an option is missing or wrong; names it and the fix.
    """
    for name in (DIRECTORY, CHANNEL):
        if name not in options:
            raise ConfigurationError(f"the bus needs the option {name!r}: add .option({name!r}, ...)")
    channel = options[CHANNEL]
    if channel not in set(Channel):
        raise ConfigurationError(f"the bus has no channel {channel!r}; use {', '.join(Channel)}")
    limit = options.get(MAX_BYTES, str(DEFAULT_MAX_BYTES))
    if not limit.isdecimal() or int(limit) == 0:
        raise ConfigurationError(f"{MAX_BYTES} is {limit!r}; use a number of bytes above 0")
    return {"directory": Path(options[DIRECTORY]), "channel": Channel(channel), "max_bytes": int(limit)}


class BusStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the pieces of a bus. Planning and reading happen in different processes."""

    def __init__(self, directory: Path, channel: Channel, max_bytes: int) -> None:
        self._bus = DirectoryReader(directory)
        self._channel = channel
        self._max_bytes = max_bytes
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Begin with the oldest position of every log."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Bound what one batch reads."""
        return ReadMaxBytes(self._max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember what there is now: the query ends when it has read that."""
        self._target = self._bus.end_positions(self._channel)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Tell the progress report what there is to read."""
        return dict(sorted(self._bus.end_positions(self._channel).items()))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Give the end of the next batch; waits a moment when there is nothing, so that an idle query costs little."""
        ends = self._awaited(start)
        check_continuity(start, ends, self._channel)
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(start, ends)
        return dict(sorted({**start, **ends}.items()))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Cut a batch into tasks."""
        pieces = [
            piece
            for source, upper in end.items()
            if (lower := self._lower(start, source)) < upper
            for piece in self._cut(LogRange(source, lower, upper))
        ]
        return [BusPartition(group) for group in grouped(pieces, self._max_bytes // _TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the pieces of one task, as Arrow batches."""
        freeze_imports()
        for piece in cast("BusPartition", partition).ranges:
            yield from arrow_batches(piece.source, self._bus.read(self._channel, piece.source, piece.start, piece.end))

    def commit(self, end: dict[str, int]) -> None:
        """Keep everything: segments are deleted below the positions that the tables have committed."""

    def _awaited(self, start: Mapping[str, int]) -> dict[str, int]:
        """Give the ends of the logs that have news."""
        deadline = time.monotonic() + _IDLE_SECONDS
        while True:
            ends = self._bus.end_positions(self._channel) if self._target is None else self._target
            news = {source: end for source, end in ends.items() if end != self._lower(start, source)}
            if news or self._target is not None or time.monotonic() >= deadline:
                return news
            time.sleep(_LOOK_SECONDS)

    def _lower(self, start: Mapping[str, int], source: str) -> int:
        """Give the position where a log goes on."""
        return start[source] if source in start else self._bus.start_positions(self._channel).get(source, 0)

    def _limited(self, start: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        """Share the limit of a batch among the logs that have news."""
        share = self._max_bytes // max(len(ends), 1)
        return {source: self._within(source, self._lower(start, source), end, share) for source, end in ends.items()}

    def _within(self, source: str, start: int, end: int, share: int) -> int:
        """Give the last boundary of a frame within a share of a log; at least one frame is read."""
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

    def _cut(self, piece: LogRange) -> list[LogRange]:
        """Cut a piece where a segment ends, and where a task has enough."""
        bases = self._bus.segment_positions(self._channel, piece.source)
        bounds = [piece.start, *(base for base in bases if piece.start < base < piece.end), piece.end]
        return [each for lower, upper in pairwise(bounds) for each in self._cut_in_tasks(piece.source, lower, upper)]

    def _cut_in_tasks(self, source: str, start: int, end: int) -> Iterator[LogRange]:
        """Cut a piece of one segment; where no record ends near, the rest is one task's."""
        size = self._max_bytes // _TASKS
        while end - start > size:
            near = self._bus.frame_start(self._channel, source, start, start + size)
            if near is None or near <= start:
                break
            yield LogRange(source, start, near)
            start = near
        yield LogRange(source, start, end)


def check_continuity(start: Mapping[str, int], ends: Mapping[str, int], channel: str) -> None:
    """Refuse a log that is shorter than what was already read of it.

    Raises:
        IsrwatchError: it was cut or replaced.
    """
    for source, end in ends.items():
        if end < start.get(source, 0):
            raise IsrwatchError(
                f"the log {channel}/{source} ends at position {end}, but was already read up to {start[source]}: "
                "it was cut or replaced; restore it, or start with a new checkpoint and new tables"
            )


@cache
def freeze_imports() -> None:
    """Let the collector pass over what is loaded: a worker of Spark collects after each task, whatever that did."""
    gc.freeze()


def grouped(pieces: Iterable[LogRange], task_bytes: int) -> list[list[LogRange]]:
    """Gather small pieces into one task, since a task costs more than reading a megabyte."""
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


def arrow_batches(source: str, items: Iterator[Frame | Damaged]) -> Iterator[pa.RecordBatch]:
    """Spell frames as ``schemas.bus_schema`` in Arrow."""
    import pyarrow as pa  # noqa: PLC0415 - the planner does without it

    types = (pa.string(), pa.int64(), pa.binary(), pa.string())
    fields = zip(bus_schema(), types, strict=True)
    schema = pa.schema([pa.field(field.name, kind, field.nullable) for field, kind in fields])
    while rows := list(islice(items, _ROWS_PER_BATCH)):
        # A frame and damage both begin with their position and their bytes; damage goes on with its reason.
        columns = (
            [row[0] for row in rows],
            [row[1] for row in rows],
            [row[2] if isinstance(row, Damaged) else None for row in rows],
        )
        named = zip(columns, types[1:], strict=True)
        arrays = [pa.repeat(source, len(rows)), *(pa.array(column, kind) for column, kind in named)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
