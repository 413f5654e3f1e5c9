"""Writes to tables of ours as tests need them: no other engine may write them, so each of these is one of our commits.

Each moves the handle that it is given to the version that it makes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake import Schema

from streaming.delta.log.definitions import redefined
from streaming.delta.log.maintenance import LARGE_BYTES, compact
from streaming.delta.log.storage import data_files, delete_files
from streaming.delta.log.writer import OVERWRITE, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from deltalake import DeltaTable


def writer_of(table: DeltaTable) -> Writer:
    table.update_incremental()
    return Writer(table, Path(table.table_uri.removeprefix("file://")))


def write(table: DeltaTable, rows: pa.Table, mode: Any = "append", **transactions: int) -> int:
    """Append rows, or put them in place of all; give the version."""
    writer = writer_of(table)
    if mode == OVERWRITE and rows.schema.names != [field.name for field in table.schema().fields]:
        schema = redefined(table, schema=Schema.from_arrow(rows.schema).to_json())
        writer.add_files(writer.written(rows), [*writer.files()], transactions, definition=(schema,))
    else:
        writer.write(rows, mode, transactions)
    return int(writer.table.version())


def set_properties(table: DeltaTable, properties: Mapping[str, str]) -> int:
    writer = writer_of(table)
    writer.add_files((), (), {}, definition=(redefined(table, properties),))
    return int(writer.table.version())


def merge_files(table: DeltaTable) -> None:
    """Compact a table that is partitioned by day."""
    writer = writer_of(table)
    compact(writer, LARGE_BYTES)
    assert writer.table.version() == table.version()


def delete_old_files(table: DeltaTable) -> None:
    """Delete the files that the newest version does not need."""
    writer = writer_of(table)
    needed = {unquote(name) for name in writer.files()}
    delete_files(writer.path, data_files(writer.path) - needed)
