"""``contracts.tables`` as Arrow schemas, and the check that a table is ours and has a layout that this program reads.

Deletion vectors, column mapping and v2 checkpoints stay off, so that readers without a JVM can follow.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import ArrayType, PrimitiveType, StructType

from streaming.delta.log.arrow_types import arrow_type
from streaming.delta.log.commit import Layout
from streaming.delta.log.storage import make_folder, open_table, table_at, writing
from streaming.delta.store.place import options_of
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deltalake import Field

    from streaming.contracts.columns import Table
    from streaming.delta.store.place import Place

APPEND_ONLY: Final = "delta.appendOnly"
LAYOUT_PROPERTY: Final = "isrwatch.layoutVersion"
CHECKPOINT_PROPERTY: Final = "delta.checkpointInterval"
STATISTICS_PROPERTY: Final = "delta.dataSkippingStatsColumns"
_FILTERED_BY: Final = frozenset({
    "version", "cluster_id", "cluster", "subject", "topic", "partition", "broker", "event", "occurred_not_after",
    "collected_at",
})  # fmt: skip


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table, columns ordered as in the definition."""
    return pa.schema([pa.field(column.name, arrow_type(column.type), column.nullable) for column in table.columns])


def rows_to_arrow(rows: list[dict[str, object]], schema: pa.Schema) -> pa.Table:
    """Convert rows, dictionaries by column name, to Arrow.

    Raises:
        AssertionError: a row lacks a column or has an unknown one; Arrow alone would write null.
    """
    names = set(schema.names)
    for row in rows:
        if row.keys() != names:
            raise AssertionError(f"columns {sorted(row.keys() ^ names)} are forgotten or unknown")
    return pa.Table.from_pylist(rows, schema=schema)


def properties_of(table: Table) -> dict[str, str]:
    """Return a table's properties.

    The job itself expires log entries and old files (``maintenance``), earlier than the retention times below, which
    are for other programs that might clean up the table. Only columns that queries filter by have statistics: there are
    more than a hundred columns, and the log holds the statistics of every file.
    """
    return {
        CHECKPOINT_PROPERTY: "50" if table.append_only else "5",
        APPEND_ONLY: "true" if table.append_only else "false",
        "delta.enableExpiredLogCleanup": "false",
        "delta.logRetentionDuration": "interval 30 days",
        "delta.deletedFileRetentionDuration": "interval 10 minutes",
        STATISTICS_PROPERTY: ",".join(file_layout(table).with_statistics),
        LAYOUT_PROPERTY: str(table.layout),
    }


def file_layout(table: Table) -> Layout:
    """Return the layout of the files of a table."""
    filtered = (column.name for column in table.columns if column.name in _FILTERED_BY)
    return Layout(tuple(table.partitioned_by), tuple(name for name in filtered if name not in table.partitioned_by))


def layout_of(opened: DeltaTable) -> int | None:
    """Return the layout of a table; None if it is not ours."""
    layout = opened.metadata().configuration.get(LAYOUT_PROPERTY) or ""
    return int(layout) if layout.isdecimal() and int(layout) > 0 else None


def check_layout(opened: DeltaTable, table: Table) -> None:
    """Refuse a table that this program cannot read. Unknown columns do not matter.

    Raises:
        TableRefused: another program's table, or a newer isrwatch's, or the job has yet to add a column to it.
    """
    layout = layout_of(opened)
    if layout is None:
        raise TableRefused(f"{opened.table_uri} is not a table of isrwatch; point tables.directory at another folder")
    if layout > table.layout:
        raise TableRefused(
            f"{opened.table_uri} was written by a newer isrwatch (layout {layout}, this program reads {table.layout}); "
            "upgrade isrwatch"
        )
    columns = ColumnComparison.of(opened, table)
    if not columns.are_ours:
        raise TableRefused(
            f"the columns of {opened.table_uri} are not those of isrwatch's {table.name}; "
            "move the folder away or point tables.directory at another one"
        )
    if columns.lacking:
        raise TableRefused(
            f"{opened.table_uri} lacks {', '.join(columns.lacking)}; start isrwatch job of this version once: it adds "
            "new columns"
        )


class ColumnComparison(NamedTuple):
    """The columns of a table compared with its definition; fields of structs have names like ``after.leader``.

    Attributes:
        lacking: columns that the table lacks.
        unknown: columns that the definition lacks.
        are_ours: all others are equal, and those that are lacking may be null.
    """

    lacking: tuple[str, ...]
    unknown: tuple[str, ...]
    are_ours: bool

    @classmethod
    def of(cls, opened: DeltaTable, table: Table) -> ColumnComparison:
        """Compare a table with its definition, in any order of columns: new ones are added at the end."""
        there, ours = opened.schema(), Schema.from_arrow(arrow_schema(table))
        if there == ours:
            return cls((), (), are_ours=True)
        present, defined = dict(_types_of(there.fields)), dict(_types_of(ours.fields))
        lacking = tuple(name for name in defined if name not in present)
        return cls(
            lacking,
            unknown=tuple(name for name in present if name not in defined),
            are_ours=all(present[name] == kind for name, kind in defined.items() if name in present)
            and all(defined[name].endswith(_NULLABLE) for name in lacking),
        )


_NULLABLE: Final = " or null"


def _types_of(fields: Iterable[Field], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield each column with its type, followed by the fields of structs and of lists of structs."""
    for field in fields:
        kind, brackets = field.type, ""
        if isinstance(kind, ArrayType):
            brackets = "[]" if kind.contains_null else "[required]"
            kind = kind.element_type
        name = kind.type if isinstance(kind, PrimitiveType) else type(kind).__name__
        yield above + field.name, f"{name}{brackets}{_NULLABLE if field.nullable else ''}"
        if isinstance(kind, StructType):
            yield from _types_of(kind.fields, f"{above}{field.name}.")


# Opening tables for writing: missing tables are created, and missing columns added.
#
# Only a nullable column can be added, to a table or at the end of a struct; earlier rows have null there. That does not
# raise the layout: readers that do not know the column continue, and those that know it wait for the job, which adds it
# when it starts. Every other change of the columns raises ``Table.layout``: programs that do not know the new layout
# refuse the table.


def create_or_upgrade(directory: Place, table: Table) -> DeltaTable:
    """Open a table below ``directory`` for writing; create it, or add missing columns, as needed.

    Raises:
        ConfigurationError: its folder cannot be created.
        TableRefused: another program's table, or one that a newer isrwatch wrote.
        TableUnreadable: its log is damaged.
    """
    path = directory / table.name
    make_folder(path)
    existing = open_table(path)
    if existing is None:
        _create(path, table)
        existing = table_at(path)
    if layout_of(existing) == table.layout:
        _add_columns(existing, table)
    check_layout(existing, table)
    if unknown := ColumnComparison.of(existing, table).unknown:
        raise TableRefused(
            f"{existing.table_uri} was written by a newer isrwatch (this program does not know {', '.join(unknown)}); "
            "upgrade isrwatch"
        )
    return existing


def _create(path: Place, table: Table) -> None:
    """Commit the first version, unless another writer does so at the same time."""
    with suppress(CommitFailedError), writing(str(path)):
        DeltaTable.create(
            str(path),
            schema=arrow_schema(table),
            partition_by=list(table.partitioned_by),
            name=table.name,
            description=table.comment,
            mode="ignore",
            configuration={**properties_of(table)},
            raise_if_key_not_exists=False,
            commit_properties=CommitProperties(max_commit_retries=0),
            storage_options=options_of(path),
        )


def _add_columns(opened: DeltaTable, table: Table) -> None:
    """Add the columns and fields of structs that a table lacks."""
    columns = ColumnComparison.of(opened, table)
    names = {name.partition(".")[0] for name in columns.lacking}
    if not names or not columns.are_ours:
        return
    fields = [field for field in Schema.from_arrow(arrow_schema(table)).fields if field.name in names]
    try:
        with writing(opened.table_uri):
            opened.alter.add_columns(fields, commit_properties=CommitProperties(max_commit_retries=0))
    except CommitFailedError as error:
        raise TableRefused(
            f"another job writes {opened.table_uri} while columns are added to it; stop it, then start this one again"
        ) from error
    except (DeltaError, pa.ArrowException) as error:
        raise TableRefused(
            f"no column can be added to {opened.table_uri}: {str(error).strip().splitlines()[0]}; bring back the whole "
            "folder of the tables from a copy"
        ) from error
