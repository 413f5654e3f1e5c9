"""A batch that carries more than anonymous records: who wrote it, keys, or a transaction's marker. Values only."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

NO_PRODUCER: Final = -1


class Marker(Enum):
    """End of a transaction, as its control batch says (api keys of the control record)."""

    ABORT = 0
    COMMIT = 1


class Batch(NamedTuple):
    """Records ``[base_offset, base_offset + size)`` that were appended together (KIP-98).

    Attributes:
        keys: of each record, where a test or compaction cares; else empty.
        values: likewise, any immutable values; None is a tombstone.
        marker: set for a control batch, which has one record.
        coordinator_epoch: in a marker, the leader epoch of the coordinator that decided.
        deltas: where the records stand that compaction left, counted from the base offset; None: all are there.
        delete_horizon_ms: when its tombstones may go; None before they were compacted for the first time.
    """

    base_offset: int
    size: int
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    marker: Marker | None = None
    keys: tuple[str, ...] = ()
    values: tuple[object, ...] = ()
    timestamp_ms: int = 0
    coordinator_epoch: int = -1
    deltas: tuple[int, ...] | None = None
    delete_horizon_ms: int | None = None

    @property
    def offsets(self) -> tuple[int, ...]:
        """Offsets of its records, those that compaction left; as many as there are keys."""
        deltas = range(self.size) if self.deltas is None else self.deltas
        return tuple(self.base_offset + delta for delta in deltas)

    @property
    def last_offset(self) -> int:
        """Offset of its last record."""
        return self.base_offset + self.size - 1

    @property
    def end_offset(self) -> int:
        """Offset after its last record."""
        return self.base_offset + self.size
