"""Tables that are opened and read once per version, for readers that ask again and again."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from streaming.delta.log.queries import open_ours, query
from streaming.delta.log.table_log import BEFORE_FIRST, has_entry, identity_of
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
        self._identity: tuple[object, ...] | None = None  # of the entry of its version
        self._rows: pa.Table | None = None
        self._looked_at = -math.inf

    def opened(self, *, is_urgent: bool = False) -> DeltaTable | None:
        """Return the table, None if there is none; ``is_urgent``: with what was committed just now.

        Raises:
            TableUnreadable: its log cannot be read.
        """
        path, now = self._tables / self._definition.name, time.monotonic()
        if not isinstance(path, Url) or is_urgent or now - self._looked_at >= SECONDS_BETWEEN_LOOKS:
            if self._table is None or self._has_moved(path):
                self._table, self._rows = open_ours(self._tables, self._definition), None
                self._identity = None if self._table is None else identity_of(path, self.version)
            self._looked_at = now
        return self._table

    def _has_moved(self, path: Place) -> bool:
        """Return whether there is another version, or another table in its place."""
        return has_entry(path, self.version + 1) or identity_of(path, self.version) != self._identity

    def rows(self) -> pa.Table | None:
        """Return its rows, None if there is no table."""
        table = self.opened()
        if table is None:
            return None
        if self._rows is None:
            self._rows = query(table, f"SELECT {self._selected} FROM rows")  # noqa: S608 - our own columns
        return self._rows

    def read(self) -> None:
        """Open the table, and read its rows, if some are selected."""
        if self._selected:
            self.rows()
        else:
            self.opened()

    @property
    def version(self) -> int:
        """The version that was opened last."""
        return BEFORE_FIRST if self._table is None else int(self._table.version())
