"""A batch that carries more than anonymous records: who wrote it, keys, or a transaction's marker. Values only."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

NO_PRODUCER: Final = -1


class Marker(Enum):
    """How a transaction ended, as its control batch says (api keys of the control record)."""

    ABORT = 0
    COMMIT = 1


class Batch(NamedTuple):
    """Records ``[base_offset, base_offset + size)`` that were appended together (KIP-98).

    Attributes:
        keys: of each record, where a test or compaction cares; else empty.
        values: likewise, any immutable values; None is a tombstone.
        marker: set for a control batch, which has one record.
        coordinator_epoch: in a marker, the leader epoch of the coordinator that decided.
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

    @property
    def last_offset(self) -> int:
        """Offset of its last record."""
        return self.base_offset + self.size - 1

    @property
    def end_offset(self) -> int:
        """Offset after its last record."""
        return self.base_offset + self.size
