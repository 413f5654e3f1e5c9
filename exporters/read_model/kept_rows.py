"""Tables that are opened and read once per version, for readers that ask again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from streaming.delta.log.queries import open_ours, query
from streaming.delta.log.table_log import BEFORE_FIRST, has_moved
from streaming.delta.store.place import Url

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from streaming.contracts.columns import Table
    from streaming.delta.store.place import Place

SECONDS_BETWEEN_LOOKS: Final = 5.0
"""In a store, where each look is two requests. What was committed meanwhile is of the present, not of the past."""


class KeptTable:
    """A table, opened again when it has another version. Not for more than one thread at once."""

    def __init__(self, tables: Place, definition: Table, selected: str = "") -> None:
        """Read nothing yet.

        Args:
            tables: the folder of the tables; it need not exist yet.
            definition: of the table.
            selected: SQL of the columns that :meth:`rows` returns.
        """
        self._tables, self._definition, self._selected = tables, definition, selected
        self._table: DeltaTable | None = None
        self._rows: tuple[int, pa.Table] | None = None
        self._looked_at = 0.0

    def opened(self) -> DeltaTable | None:
        """Return the table, None if there is none.

        Raises:
            TableUnreadable: its log cannot be read.
        """
        path, now = self._tables / self._definition.name, time.monotonic()
        is_rested = not isinstance(path, Url) or now - self._looked_at >= SECONDS_BETWEEN_LOOKS
        if self._table is None or (is_rested and has_moved(path, int(self._table.version()))):
            self._table = open_ours(self._tables, self._definition)
        self._looked_at = now if is_rested else self._looked_at
        return self._table

    def rows(self) -> pa.Table | None:
        """Return its rows, None if there is no table."""
        table = self.opened()
        if table is None:
            return None
        version = int(table.version())
        if self._rows is None or self._rows[0] != version:
            self._rows = version, query(table, f"SELECT {self._selected} FROM rows")  # noqa: S608 - our own columns
        return self._rows[1]

    @property
    def version(self) -> int:
        """The version that was opened last."""
        return BEFORE_FIRST if self._table is None else int(self._table.version())
