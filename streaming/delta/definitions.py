"""``contracts.tables`` as Arrow schemas, and the check that a table is ours and has the layout that this program reads.

Deletion vectors, column mapping and v2 checkpoints stay off, so that every reader without a JVM can follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import Schema

from streaming.delta.arrow_types import arrow_type
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streaming.contracts.columns import Table

APPEND_ONLY: Final = "delta.appendOnly"
LAYOUT_PROPERTY: Final = "isrwatch.layoutVersion"
STATISTICS_PROPERTY: Final = "delta.dataSkippingStatsColumns"
_FILTERED_BY: Final = frozenset(
    {"version", "cluster_id", "cluster", "topic", "partition", "broker", "event", "occurred_not_after", "collected_at"}
)


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table, its columns in the order of the definition."""
    return pa.schema([pa.field(column.name, arrow_type(column.type), column.nullable) for column in table.columns])


def rows_to_arrow(rows: list[dict[str, object]], schema: pa.Schema) -> pa.Table:
    """Convert rows, dictionaries by column name, to Arrow.

    Raises:
        AssertionError: a row lacks a column, or has one that the table does not have. Arrow alone would write null.
    """
    names = set(schema.names)
    for row in rows:
        if row.keys() != names:
            raise AssertionError(f"columns {sorted(row.keys() ^ names)} are forgotten or unknown")
    return pa.Table.from_pylist(rows, schema=schema)


def properties_of(table: Table) -> dict[str, str]:
    """Return a table's properties.

    The job itself expires log entries and old files (``maintenance``), earlier than the retention times below, which
    are for other programs that would clean the table up.

    Statistics are restricted to the columns that queries filter by: there are more than a hundred columns, and the log
    holds the statistics of every file.
    """
    return {
        "delta.checkpointInterval": "50" if table.append_only else "5",
        APPEND_ONLY: "true" if table.append_only else "false",
        "delta.enableExpiredLogCleanup": "false",
        "delta.logRetentionDuration": "interval 30 days",
        "delta.deletedFileRetentionDuration": "interval 10 minutes",
        STATISTICS_PROPERTY: ",".join(
            column.name
            for column in table.columns
            if column.name in _FILTERED_BY and column.name not in table.partitioned_by
        ),
        LAYOUT_PROPERTY: str(table.layout),
    }


def layout_of(opened: DeltaTable) -> int | None:
    """Return the layout of a table; None where it is not ours."""
    layout = opened.metadata().configuration.get(LAYOUT_PROPERTY) or ""
    return int(layout) if layout.isdecimal() and int(layout) > 0 else None


def check_layout(opened: DeltaTable, table: Table) -> None:
    """Refuse a table that this program cannot read.

    Raises:
        TableRefused: another program's table, a newer isrwatch's, or an older one's that the job has not upgraded yet.
    """
    layout = layout_of(opened)
    if layout is None:
        raise TableRefused(f"{opened.table_uri} is not a table of isrwatch; point tables.directory at another folder")
    if layout > table.layout:
        raise TableRefused(
            f"{opened.table_uri} was written by a newer isrwatch (layout {layout}, this program reads {table.layout}); "
            "upgrade isrwatch"
        )
    if layout < table.layout:
        raise TableRefused(
            f"{opened.table_uri} has the layout {layout} of an older isrwatch, this program reads {table.layout}; "
            "start isrwatch job of this version once: it upgrades the tables"
        )
    if _columns_of(opened.schema()) != _columns_of(Schema.from_arrow(arrow_schema(table))):
        raise TableRefused(
            f"the columns of {opened.table_uri} are not those of isrwatch's {table.name}; "
            "move the folder away or point tables.directory at another one"
        )


def _columns_of(schema: Schema) -> dict[str, str]:
    """Return each column as text. Their order does not matter: an upgrade adds columns behind all others."""
    return {field.name: field.to_json() for field in schema.fields}
