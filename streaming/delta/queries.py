"""Tables read as Arrow through DataFusion: the one engine without a JVM that follows every feature a table may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import QueryBuilder

from streaming.delta.arrow_values import plain
from streaming.delta.definitions import arrow_schema, check_layout
from streaming.delta.storage import open_table, reading

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from deltalake import DeltaTable

    from streaming.contracts.columns import Table


def open_ours(directory: Path, definition: Table) -> DeltaTable | None:
    """Open a table below a directory to read it; None where there is none.

    Raises:
        TableRefused: it has another layout than this program reads.
    """
    table = open_table(directory / definition.name)
    if table is not None:
        check_layout(table, definition)
    return table


def query(table: DeltaTable, sql: str) -> pa.Table:
    """Run SQL over one table, which is called ``rows`` in it; the result has the types of our schemas.

    Raises:
        TableUnreadable: a data file is damaged or missing.
    """
    with reading(table.table_uri):
        return ours(pa.table(QueryBuilder().register("rows", table).execute(sql)))


def select(table: DeltaTable | None, definition: Table, where: str = "true") -> pa.Table:
    """Read rows of a table in the types and the order of its definition; none where there is no table."""
    schema = arrow_schema(definition)
    if table is None:
        return schema.empty_table()
    return query(table, f"SELECT {quoted(schema.names)} FROM rows WHERE {where}").cast(schema)  # noqa: S608 - our own columns


def read_all(table: DeltaTable) -> pa.Table:
    """Read a whole table, timestamps as microseconds."""
    return plain(query(table, "SELECT * FROM rows"))


def quoted(columns: Iterable[str]) -> str:
    """Write names of columns in SQL, each once."""
    return ", ".join(f'"{name}"' for name in dict.fromkeys(columns))


def ours(rows: pa.Table) -> pa.Table:
    """Spell views and large types, DataFusion's own, as the types of our schemas."""
    return rows.cast(pa.schema([pa.field(item.name, _plain_arrow(item.type)) for item in rows.schema]))


def _plain_arrow(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(item.name, _plain_arrow(item.type)) for item in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_arrow(kind.value_type))
    return kind
