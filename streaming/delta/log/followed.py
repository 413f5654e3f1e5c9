"""A table in a store, followed by the entries of its log: one request for each version, and one for each new data file.

Opening a table lists its log, and reads a checkpoint and every entry behind it: a dozen requests for what one entry
says. So a reader that follows opens a table once, and keeps the names of its files; it opens the table again where the
next entry defines it differently, has expired, or where the table was replaced.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming import movement
from streaming.delta.log.copies import AT_ONCE
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.queries import open_ours
from streaming.delta.log.storage import content_of, in_schema, rows_in
from streaming.delta.log.table_log import entry_actions, has_entry
from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deltalake import DeltaTable

    from streaming.contracts.columns import Table
    from streaming.delta.store.place import Place

KEPT_BYTES: Final = 32 << 20
"""Files of a table that are kept as they are stored, together: of many clusters one has news, and one file is new."""
LOOKS_PER_CHECK: Final = 4
"""Looks that find nothing, of which one checks that the table was not replaced."""
_DEFINES: Final = frozenset({"metaData", "protocol"})


class FollowedTable:
    """The data files of a table at the version that was read last. Not for more than one thread at once."""

    def __init__(self, path: Place, definition: Table, table: DeltaTable) -> None:
        self._path, self._definition = path, definition
        self._contents: dict[str, bytes] = {}
        self._took_over(table)

    @classmethod
    def opened(cls, directory: Place, definition: Table) -> FollowedTable | None:
        """Open a table below a directory, None if there is none; raises as :func:`open_ours` does."""
        table = open_ours(directory, definition)
        return None if table is None else cls(directory / definition.name, definition, table)

    def _took_over(self, table: DeltaTable) -> None:
        self.table, self.version, self._looks = table, int(table.version()), 0
        columns = table.metadata().partition_columns
        self._files: dict[str, Mapping[str, str]] = {
            row["path"]: {name: str(row[f"partition.{name}"]) for name in columns}
            for row in pa.table(table.get_add_actions(flatten=True)).to_pylist()
        }

    def follow(self, announced: int | None = None) -> bool:
        """Move to the newest version, at least to the one that was announced; return whether it is another one.

        Raises:
            TableUnreadable: the table is gone, or a file of its log cannot be read.
        """
        began = self.version
        while self.version == began or announced is None or self.version < announced:
            actions = entry_actions(self._path, self.version + 1)
            if actions is None:
                break
            if any(_DEFINES & action.keys() for action in actions):
                return self._open_again()
            self._apply(actions)
        self._looks = self._looks + 1 if self.version == began else 0
        is_check_due = announced is None or announced > self.version or self._looks % LOOKS_PER_CHECK == 0
        if self.version == began and is_check_due and not has_entry(self._path, self.version):
            return self._open_again()
        return self.version != began

    def _apply(self, actions: Iterable[Mapping[str, Any]]) -> None:
        for action in actions:
            if "add" in action:
                self._files[action["add"]["path"]] = action["add"]["partitionValues"]
            elif "remove" in action:
                self._files.pop(action["remove"]["path"], None)
        self.version += 1

    def _open_again(self) -> bool:
        table = open_ours(self._path.parent, self._definition)
        if table is None:
            raise TableUnreadable(f"the table {self._path} is gone; bring back the whole folder of the tables")
        self._took_over(table)
        return True

    def rows(self, columns: Sequence[str]) -> pa.Table:
        """Read some columns of all rows; raises ``TableUnreadable`` if a file is damaged or missing."""
        whole = arrow_schema(self._definition)
        schema = pa.schema([whole.field(name) for name in dict.fromkeys(columns)])
        with ThreadPoolExecutor(AT_ONCE) as pool:
            contents = list(pool.map(self._content, self._files))
        self._contents = dict(zip(self._files, contents, strict=True))
        rows = [self._decoded(name, schema) for name in self._files]
        if sum(map(len, contents)) > KEPT_BYTES:
            self._contents = {}
        movement.note()
        return pa.concat_tables([schema.empty_table(), *rows])

    def _content(self, name: str) -> bytes:
        return self._contents[name] if name in self._contents else content_of(self._path, name)

    def _decoded(self, name: str, schema: pa.Schema) -> pa.Table:
        return in_schema(rows_in(self._contents[name], self._path, schema.names), schema, self._files[name])
