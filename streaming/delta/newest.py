"""Tables that keep the newest row of a key: replica offsets, broker metrics.

The rows live in memory and the table is overwritten, with the positions of the sources in the same commit. They are
samples: the next one replaces them, so no history is kept here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.delta.definitions import arrow_schema, create_or_check
from streaming.delta.rows import read_all
from streaming.delta.truth import applied_position, moved
from streaming.delta.upkeep import Upkeep
from streaming.delta.writer import OVERWRITE, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from streaming.contracts.columns import Table


FORGOTTEN_AFTER: Final = 60_000_000


class NewestRows:
    """The one writer of such a table."""

    def __init__(self, directory: Path, table: Table) -> None:
        self._definition = table
        self._table = create_or_check(directory, table)
        self._schema = arrow_schema(table)
        self._writer = Writer(self._table)
        self._positions: dict[str, int] = {}
        self._upkeep = Upkeep(self._table, append_only=False)
        self._rows: dict[tuple[Any, ...], Mapping[str, Any]] = {}
        self._keep(read_all(self._table).to_pylist())

    @property
    def positions(self) -> dict[str, int]:
        """The positions of the sources that were heard since the start."""
        return dict(self._positions)

    def position(self, source: str) -> int:
        """Give the position of the last applied observation of a source, -1 for none."""
        if source not in self._positions:
            self._positions[source] = applied_position(self._table, source)
        return self._positions[source]

    def _forget(self) -> None:
        """Drop what its source has left out since: a hung broker's last answer is no newest sample."""
        newest: dict[str, int] = {}
        for row in self._rows.values():
            newest[row["cluster_id"]] = max(newest.get(row["cluster_id"], 0), row["collected_at"])
        self._rows = {
            key: row
            for key, row in self._rows.items()
            if row["collected_at"] >= newest[row["cluster_id"]] - FORGOTTEN_AFTER
        }

    def check_ours(self) -> None:
        """Look whether somebody else writes the table since.

        Raises:
            TableRefused: somebody does.
        """
        self._writer.check_ours()

    def put(self, rows: Iterable[Mapping[str, Any]], positions: Mapping[str, int]) -> None:
        """Take newer rows over and write the whole table; without any, remember the positions until the next time."""
        rows = list(rows)
        if not rows:
            self._positions.update(positions)
            return
        self._keep(rows)
        self._forget()
        self._writer.write(
            pa.Table.from_pylist(list(self._rows.values()), schema=self._schema), OVERWRITE, moved(positions)
        )
        self._positions.update(positions)
        self._upkeep.after_commit()

    def _keep(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            key = tuple(row[name] for name in self._definition.key)
            known = self._rows.get(key)
            if known is None or row["collected_at"] >= known["collected_at"]:
                self._rows[key] = row
