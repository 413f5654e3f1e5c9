"""One micro-batch of a query that keeps the newest row of a key: replica offsets, broker metrics."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from streaming.delta.newest import NewestRows
from streaming.delta.quarantine import Quarantine
from streaming.jobs.batch import Applied, now, understand

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from streaming.contracts.columns import Table
    from streaming.contracts.observations import Channel, Observation


class NewestBatch:
    """Writes the newest row of each key. The one writer of its table."""

    def __init__(self, directory: Path, table: Table, channel: Channel) -> None:
        """Open the table and read what it holds.

        Raises:
            TableRefused: the table is not ours, or newer than this program.
        """
        self._rows = NewestRows(directory, table)
        self._columns = table.column_names()
        self._channel = channel
        self._quarantine = Quarantine(directory, channel)

    @property
    def positions(self) -> dict[str, int]:
        """How far each source was applied."""
        return self._rows.positions

    def apply(self, rows: pa.Table) -> Applied:
        """Apply one batch; samples that are older than what the table holds change nothing."""
        began = time.perf_counter()
        understood = understand(rows, self._rows, self._channel)
        self._quarantine.add(understood.refused, now())
        if understood.observations:
            self._rows.put([self._row(observed) for observed in understood.observations], understood.positions)
        return Applied(
            observations=len(understood.observations),
            changes=len(understood.observations),
            refused=len(understood.refused),
            version=-1,
            seconds=time.perf_counter() - began,
        )

    def _row(self, observed: Observation) -> dict[str, Any]:
        told = {item.name for item in fields(observed)}
        return {name: getattr(observed, name) for name in self._columns if name in told}
