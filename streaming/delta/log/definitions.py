"""``contracts.tables`` as Arrow schemas, and the check that a table is ours and has a layout that this program reads.

Deletion vectors, column mapping and v2 checkpoints stay off, so that readers without a JVM can follow. Other engines
can read the tables, and cannot write them.
"""

from __future__ import annotations

import json
import time
import uuid
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from deltalake import Schema
from deltalake.schema import ArrayType, PrimitiveType, StructType

from streaming.delta.log.arrow_types import arrow_type
from streaming.delta.log.commit import Layout, entry
from streaming.delta.log.storage import make_folder, open_table, table_at, writing
from streaming.delta.log.table_log import entry_of
from streaming.delta.store.objects import create, get
from streaming.delta.store.place import Url
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from deltalake import DeltaTable, Field

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


CHECKPOINTS_OF_APPENDED: Final = 50
"""Commits between two checkpoints of a table that only grows."""
CHECKPOINTS_IN_STORES: Final = 25
"""Commits between two checkpoints of a table that is written again and again; one takes eight requests."""


def properties_of(table: Table, *, is_in_store: bool = False) -> dict[str, str]:
    """Return a table's properties.

    The job itself expires log entries and old files (``maintenance``), earlier than the retention times below, which
    are for other programs that might clean up the table. Only columns that queries filter by have statistics: there are
    more than a hundred columns, and the log holds the statistics of every file.
    """
    rewritten = CHECKPOINTS_IN_STORES if is_in_store else 5
    return {
        CHECKPOINT_PROPERTY: str(CHECKPOINTS_OF_APPENDED if table.append_only else rewritten),
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

    All others are ours if they are equal, and those that are lacking may be null.
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
#
# No other engine may write: its commit would take the version that ours is about to make, and ours would stop. So the
# protocol of a table requires a feature of writers that no other engine has: Spark and delta-rs refuse to write,
# compact, vacuum, restore or alter it. Readers are not concerned: Delta lists what a reader must know separately.


WRITER_FEATURE: Final = "isrwatch"
_WRITER_FEATURES: Final = ("appendOnly", "invariants", WRITER_FEATURE)
_WITH_FEATURES: Final = 7
"""The version of Delta's protocol for writers from which on it names features."""


def create_or_upgrade(directory: Place, table: Table) -> DeltaTable:
    """Open a table below ``directory`` for writing; create it, or add what it lacks, as needed.

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
        _add_lacking(path, existing, table)
    check_layout(existing, table)
    if unknown := ColumnComparison.of(existing, table).unknown:
        raise TableRefused(
            f"{existing.table_uri} was written by a newer isrwatch (this program does not know {', '.join(unknown)}); "
            "upgrade isrwatch"
        )
    return existing


def _create(path: Place, table: Table) -> None:
    """Commit the first version, unless another writer does so at the same time."""
    metadata = {
        "id": str(uuid.uuid4()),
        "name": table.name,
        "description": table.comment,
        "format": _FORMAT,
        "schemaString": Schema.from_arrow(arrow_schema(table)).to_json(),
        "partitionColumns": list(table.partitioned_by),
        "configuration": properties_of(table, is_in_store=isinstance(path, Url)),
        "createdTime": time.time_ns() // 1_000_000,
    }
    with writing(str(path)):
        create(entry_of(path, 0), entry((), (), {}, (_protocol(1), {"metaData": metadata})))


_FORMAT: Final = {"provider": "parquet", "options": {}}


def _protocol(reader_version: int) -> dict[str, Any]:
    """Return the action that lets no other engine write a table; ``reader_version`` stays as it is."""
    features = {"minWriterVersion": _WITH_FEATURES, "writerFeatures": list(_WRITER_FEATURES)}
    return {"protocol": {"minReaderVersion": reader_version, **features}}


def redefined(
    table: DeltaTable, properties: Mapping[str, str] = MappingProxyType({}), schema: str | None = None
) -> dict[str, Any]:
    """Return the action that changes properties of a table, or its schema, and leaves all else as it is."""
    now = table.metadata()
    return {
        "metaData": {
            "id": str(now.id),
            "name": now.name,
            "description": now.description,
            "format": _FORMAT,
            "schemaString": table.schema().to_json() if schema is None else schema,
            "partitionColumns": now.partition_columns,
            "configuration": {**now.configuration, **properties},
            "createdTime": now.created_time,
        }
    }


def _add_lacking(path: Place, opened: DeltaTable, table: Table) -> None:
    """Add the columns and fields of structs that a table lacks, and the feature that keeps other writers out."""
    columns, protocol = ColumnComparison.of(opened, table), opened.protocol()
    if not columns.are_ours:
        return
    actions = []
    if WRITER_FEATURE not in (protocol.writer_features or ()) and protocol.reader_features is None:
        actions.append(_protocol(protocol.min_reader_version))
    if columns.lacking:
        ours = json.loads(Schema.from_arrow(arrow_schema(table)).to_json())
        actions.append(redefined(opened, schema=json.dumps(_with_lacking(json.loads(opened.schema().to_json()), ours))))
    if not actions:
        return
    following, content = entry_of(path, opened.version() + 1), entry((), (), {}, actions)
    with writing(opened.table_uri):
        # If the answer was lost, the retried request finds its own entry in place.
        if not create(following, content) and get(following) != content:
            raise TableRefused(
                f"another job writes {opened.table_uri} while columns are added to it; stop it, then start this one "
                "again"
            )
        opened.update_incremental()


def _with_lacking(there: Any, ours: Any) -> Any:  # noqa: ANN401 - types as Delta's protocol writes them
    """Return a type of Delta's schema with the fields that it lacks at the end of each struct."""
    if not isinstance(there, dict) or not isinstance(ours, dict):
        return there
    if "elementType" in there:
        return {**there, "elementType": _with_lacking(there["elementType"], ours["elementType"])}
    defined = {field["name"]: field for field in ours["fields"]}
    fields = [
        {**field, "type": _with_lacking(field["type"], defined[field["name"]]["type"])}
        if field["name"] in defined
        else field
        for field in there["fields"]
    ]
    names = {field["name"] for field in fields}
    return {**there, "fields": [*fields, *(field for name, field in defined.items() if name not in names)]}
