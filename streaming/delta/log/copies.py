"""Copies of data files of a table in a store, so that a reader that asks again and again pays for each file once.

A data file never changes, and its name is never used again. So the files that a question needs are fetched whole, all
at once, and kept below a folder of this process; the question is asked of a table of these files alone. Over a store in
which each request takes long that is one wait, where a query waits for footers and columns of each file in turn. What
is too large for that is asked of the table itself.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from streaming.delta.log.storage import content_of, table_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import DeltaTable

    from streaming.delta.store.place import Place

AT_ONCE: Final = 16
"""Requests that are under way at the same time."""
LARGEST_BYTES: Final = 64 << 20
"""Files of one question that are fetched, together."""
KEPT_BYTES: Final = 256 << 20
"""Files that are kept, together; those that were needed last stay."""
_TABLES_KEPT: Final = 16


class ColumnBounds(NamedTuple):
    """Bounds of the values of a column that a question is about, both included; None is none."""

    lowest: int | str | None = None
    highest: int | str | None = None


class FileCopies:
    """The files of one table that were fetched. Not for more than one thread at once."""

    def __init__(self, path: Place) -> None:
        """Fetch nothing yet; of a table in a folder nothing is ever copied."""
        self._path = path
        self._folder: TemporaryDirectory[str] | None = None  # removed with this object
        self._sizes: OrderedDict[str, int] = OrderedDict()  # of the files that are there, by their names in the log
        self._tables: OrderedDict[tuple[str, ...], DeltaTable] = OrderedDict()

    def holding(self, table: DeltaTable, bounds: Mapping[str, ColumnBounds]) -> DeltaTable:
        """Return a table that has all rows of another one within bounds, and maybe others; often the same table.

        Bounds are of columns whose statistics say which files are needed; a file without statistics is.

        Raises:
            TableUnreadable: a file cannot be fetched.
        """
        if isinstance(self._path, Path):
            return table
        files = _within(pa.table(table.get_add_actions(flatten=True)), bounds)
        if sum(files["size_bytes"].to_pylist()) > LARGEST_BYTES:
            return table
        names = tuple(sorted(files["path"].to_pylist()))
        if names not in self._tables:
            try:
                self._fetch(dict(zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True)))
                self._tables[names] = self._table_of(table, files)
            except (OSError, DeltaError):  # no folder for temporary files, or no room in it
                return table
            while len(self._tables) > _TABLES_KEPT:
                self._tables.popitem(last=False)
        self._tables.move_to_end(names)
        return self._tables[names]

    def _fetch(self, sizes: Mapping[str, int]) -> None:
        """Fetch the files that are not there; forget those that were needed the longest time ago."""
        folder = self._opened()
        missing = [name for name in sizes if name not in self._sizes]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for name, content in zip(missing, pool.map(partial(content_of, self._path), missing), strict=True):
                (folder / _local(name)).write_bytes(content)
        for name, size in sizes.items():
            self._sizes[name] = size
            self._sizes.move_to_end(name)
        while sum(self._sizes.values()) > KEPT_BYTES and len(self._sizes) > len(sizes):
            name, _ = self._sizes.popitem(last=False)
            (folder / _local(name)).unlink(missing_ok=True)  # tables that have it keep their link

    def _table_of(self, table: DeltaTable, files: pa.Table) -> DeltaTable:
        """Return a table of files that were fetched."""
        folder = self._opened()
        names = files["path"].to_pylist()
        place = folder / f"table-{_local(''.join(sorted(names)))}"
        place.mkdir(exist_ok=True)
        for name in names:
            if not (place / _local(name)).exists():
                os.link(folder / _local(name), place / _local(name))
        columns = list(table.metadata().partition_columns)
        adds = [
            AddAction(
                _local(row["path"]), row["size_bytes"], {name: _text(row[f"partition.{name}"]) for name in columns}, 0,
                data_change=True, stats=json.dumps({"numRecords": row["num_records"]}),
            )
            for row in files.to_pylist()
        ]  # fmt: skip
        create_table_with_add_actions(str(place), table.schema(), adds, mode="ignore", partition_by=columns)
        return table_at(place)

    def _opened(self) -> Path:
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="isrwatch-files-")
        return Path(self._folder.name)


def _within(files: pa.Table, bounds: Mapping[str, ColumnBounds]) -> pa.Table:
    """Return the files that may have rows within bounds."""
    for column, (lowest, highest) in bounds.items():
        for bound, name, is_out in ((lowest, f"max.{column}", pc.less), (highest, f"min.{column}", pc.greater)):
            if bound is not None and name in files.column_names:
                values = files[name]
                scalar = pa.scalar(bound, pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(values.type) else None)
                values = values.cast(scalar.type) if pa.types.is_timestamp(values.type) else values
                files = files.filter(pc.invert(pc.fill_null(is_out(values, scalar), fill_value=False)))
    return files


def _local(name: str) -> str:
    return f"{sha256(name.encode()).hexdigest()[:32]}.parquet"


def _text(value: Any) -> str | None:  # noqa: ANN401 - of any type that a partition may have
    return None if value is None else str(value)
