"""The files of a log: when a new one is begun, what configuration says of them. Knows offsets, sizes and times only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.model.constants import Constants

RECORD_BYTES: Final = 1_024
# Indexes hold offsets relative to the segment's base in 32 bits.
MAX_RELATIVE_OFFSETS: Final = 2**31


def index_records(index_bytes: int) -> int:
    """Return the number of records that an index of a size reaches over.

    It takes an entry each 4 KiB, which is four records; those of the time index have 12 bytes, so it is full before
    the offset index is.
    """
    return 4 * index_bytes // 12


INDEX_RECORDS: Final = index_records(10 * 2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of a topic's logs, as in ``LogConfig.java``. Sizes in records of 1 KiB, times in ms, -1: no limit.

    Attributes:
        segment_records: topic configuration ``segment.bytes``.
        segment_ms: ``segment.ms``.
        index_records: ``segment.index.bytes``, as the records it can index.
        retention_ms: ``retention.ms``.
        retention_records: ``retention.bytes``.
        deletes: ``cleanup.policy`` has ``delete``.
        compacts: ``cleanup.policy`` has ``compact``.
        delete_retention_ms: ``delete.retention.ms``: how long a tombstone stays after it was first compacted.
        min_cleanable_dirty_ratio: part of the log that has to be new before it is compacted again.
        flush_interval_records: ``flush.messages``.
    """

    segment_records: int = 1_048_576
    segment_ms: int = 604_800_000
    index_records: int = INDEX_RECORDS
    retention_ms: int = 604_800_000
    retention_records: int = -1
    deletes: bool = True
    compacts: bool = False
    delete_retention_ms: int = 86_400_000
    min_cleanable_dirty_ratio: float = 0.5
    flush_interval_records: int = 2**63 - 1

    @property
    def segment_offsets(self) -> int:
        """Most offsets that a segment can have, whatever stops it first: its size or its indexes."""
        return min(self.segment_records, self.index_records, MAX_RELATIVE_OFFSETS)


DEFAULT_CONFIG: Final = LogConfig()


def config_of(constants: Constants) -> LogConfig:
    """Give the configuration of topics that have none of their own."""
    return LogConfig(
        segment_records=constants.log_segment_records,
        segment_ms=constants.log_roll_ms,
        retention_ms=constants.log_retention_ms,
        retention_records=constants.log_retention_records,
        delete_retention_ms=constants.log_cleaner_delete_retention_ms,
        flush_interval_records=constants.log_flush_interval_records,
    )


def _records(text: str) -> int:
    size = int(text)
    return size if size < 0 else max(1, size // RECORD_BYTES)


# Topic configuration: key, field of LogConfig, how to read it.
_SETTINGS: Final[tuple[tuple[str, str, Callable[[str], Any]], ...]] = (
    ("segment.bytes", "segment_records", _records),
    ("segment.ms", "segment_ms", int),
    ("segment.index.bytes", "index_records", lambda text: index_records(int(text))),
    ("retention.ms", "retention_ms", int),
    ("retention.bytes", "retention_records", _records),
    ("cleanup.policy", "deletes", lambda text: "delete" in text),
    ("cleanup.policy", "compacts", lambda text: "compact" in text),
    ("delete.retention.ms", "delete_retention_ms", int),
    ("min.cleanable.dirty.ratio", "min_cleanable_dirty_ratio", float),
    ("flush.messages", "flush_interval_records", int),
)


def log_config(settings: Mapping[str, str], constants: Constants) -> LogConfig | None:
    """Read what a topic's configuration says of its logs; None if it says nothing."""
    own = {name: read(settings[key]) for key, name, read in _SETTINGS if key in settings}
    return replace(config_of(constants), **own) if own else None


class Segment:
    """One file of a log, with its indexes; it ends where the next one begins.

    Attributes:
        base_offset: of its first record.
        first_timestamp_ms: of that record.
        largest_timestamp_ms: of all its records.
        removed: how many records compaction took out of it.
    """

    __slots__ = ("base_offset", "first_timestamp_ms", "largest_timestamp_ms", "removed")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.first_timestamp_ms = 0
        self.largest_timestamp_ms = 0
        self.removed = 0

    def begin(self, timestamp_ms: int) -> None:
        """Note when its first record was written."""
        self.first_timestamp_ms = self.largest_timestamp_ms = timestamp_ms

    @property
    def file_name(self) -> str:
        """Name of the file: the base offset in twenty digits."""
        return f"{self.base_offset:020d}.log"
