"""Tables that are opened and read once per version, for readers that ask again and again."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from streaming.delta.log.definitions import check_layout
from streaming.delta.log.queries import open_ours, query
from streaming.delta.log.storage import reading
from streaming.delta.log.table_log import BEFORE_FIRST, entry_actions, has_entry, identity_of
from streaming.delta.store.place import Url
from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from streaming.contracts.columns import Table
    from streaming.delta.store.place import Place

_ENTRIES_READ: Final = 8
SECONDS_BETWEEN_LOOKS: Final = 5.0
"""In a store, where each look is two requests. What was committed meanwhile is of the present, not of the past."""


class KeptTable:
    """A table, opened again when it has another version. Not for more than one thread at once."""

    def __init__(self, tables: Place, definition: Table, selected: str = "") -> None:
        """Read nothing yet; the folder of the tables need not exist. ``selected`` is the SQL of :meth:`rows`."""
        self._tables, self._definition, self._selected = tables, definition, selected
        self._table: DeltaTable | None = None
        self._identity: tuple[object, ...] | None = None  # of the entry of its version
        self._rows: pa.Table | None = None
        self._transactions: dict[str, int | None] = {}  # of the version that was opened
        self._looked_at = -math.inf

    def opened(self, *, is_urgent: bool = False) -> DeltaTable | None:
        """Return the table, None if there is none; ``is_urgent``: with what was committed just now.

        Raises:
            TableUnreadable: its log cannot be read.
        """
        path, now = self._tables / self._definition.name, time.monotonic()
        if not isinstance(path, Url) or is_urgent or now - self._looked_at >= SECONDS_BETWEEN_LOOKS:
            self._look(path)
            self._looked_at = now
        return self._table

    def _look(self, path: Place) -> None:
        """Follow the table if it has another version; open it if there is none yet, or another one in its place."""
        if self._table is None:
            self._open(path)
            return
        has_next, is_same = self._has_next(path)
        if not is_same or (has_next and not (isinstance(path, Url) and self._has_followed(path))):
            self._open(path)

    def _has_next(self, path: Place) -> tuple[bool, bool]:
        """Return whether there is a next version, and whether the table is still the same; in a store at once."""
        if not isinstance(path, Url):
            return has_entry(path, self.version + 1), identity_of(path, self.version) == self._identity
        with ThreadPoolExecutor(2) as pool:
            following, own = pool.map(partial(identity_of, path), (self.version + 1, self.version))
        return following is not None, own == self._identity

    def _open(self, path: Place) -> None:
        self._table, self._rows, self._transactions = open_ours(self._tables, self._definition), None, {}
        self._identity = None if self._table is None else identity_of(path, self.version)

    def _has_followed(self, path: Url) -> bool:
        """Load the newest version from the entries after this one: opening reads a checkpoint, request by request."""
        table, before = self._table, self.version
        if table is None:
            return False
        try:
            with reading(str(path)):
                table.update_incremental()
        except TableUnreadable:
            return False
        check_layout(table, self._definition)
        self._rows, self._identity = None, identity_of(path, self.version)
        self._transactions = self._with_entries(path, range(before + 1, self.version + 1))
        return True

    def _with_entries(self, path: Url, versions: range) -> dict[str, int | None]:
        """Return the transactions that are known with those of later entries; none where entries are missing."""
        if not self._transactions or len(versions) > _ENTRIES_READ:
            return {}
        with ThreadPoolExecutor(_ENTRIES_READ) as pool:
            entries = list(pool.map(partial(entry_actions, path), versions))
        if None in entries:
            return {}
        made = (action["txn"] for actions in entries for action in actions or () if "txn" in action)
        return self._transactions | {each["appId"]: int(each["version"]) for each in made}

    def rows(self) -> pa.Table | None:
        """Return its rows, None if there is no table."""
        table = self.opened()
        if table is None:
            return None
        if self._rows is None:
            self._rows = query(table, f"SELECT {self._selected} FROM rows")  # noqa: S608 - our own columns
        return self._rows

    def transaction(self, name: str) -> int | None:
        """Return the version of a transaction in what was opened last; in a store it is read once: that is requests."""
        if self._table is not None and name not in self._transactions:
            version = self._table.transaction_version(name)
            self._transactions[name] = None if version is None else int(version)
        return self._transactions.get(name)

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
