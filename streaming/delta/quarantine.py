"""What could not be understood: kept whole, with the reason and the place where it stood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from streaming.contracts.tables import QUARANTINE
from streaming.delta.definitions import arrow_schema, create_or_check
from streaming.delta.truth import applied_position, position_key

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streaming.contracts.identifiers import Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """One refused record: where it stands on the bus, why, and its bytes."""

    source: str
    position: int
    reason: str
    raw: bytes | None


class Quarantine:
    """The writer of ``quarantine`` for one channel. A replayed record is not written twice."""

    def __init__(self, directory: Path, channel: str) -> None:
        self._table = create_or_check(directory, QUARANTINE)
        self._channel = channel

    def add(self, refused: Sequence[Refused], now: Micros) -> int:
        """Append what is not there yet; give how many rows that were."""
        if not refused:
            return 0
        # Three queries write this table: what another one committed must be seen first.
        self._table.update_incremental()
        applied = {
            source: applied_position(self._table, self._log(source)) for source in {record.source for record in refused}
        }
        fresh = [record for record in refused if record.position > applied[record.source]]
        if not fresh:
            return 0
        newest: dict[str, int] = {}
        for record in fresh:
            newest[record.source] = max(newest.get(record.source, record.position), record.position)
        rows = [
            {
                "channel": self._channel,
                "source": record.source,
                "position": record.position,
                "reason": record.reason,
                "raw": record.raw,
                "quarantined_at": now,
            }
            for record in fresh
        ]
        transactions = [Transaction(position_key(self._log(source)), position) for source, position in newest.items()]
        write_deltalake(
            self._table,
            pa.Table.from_pylist(rows, schema=arrow_schema(QUARANTINE)),
            mode="append",
            commit_properties=CommitProperties(app_transactions=transactions),
        )
        return len(rows)

    def _log(self, source: str) -> str:
        return f"{self._channel}/{source}"
