"""``contracts.tables`` spelled in Arrow: create a table, or refuse one that is not ours.

Deletion vectors, column mapping and v2 checkpoints stay off, so that every reader without a JVM can follow.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError

from streaming.contracts.columns import Column, Table
from streaming.delta.writing import writing
from streaming.errors import ConfigurationError, TableRefused

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT_VERSION: Final = 1
APPEND_ONLY: Final = "delta.appendOnly"
EXPIRED: Final = "expired"
"""The transaction that tells, in days since 1970, before which day the rows of a table have expired."""
LAYOUT_PROPERTY: Final = "isrwatch.layoutVersion"
_FILTERED_BY: Final = frozenset(
    {"cluster_id", "cluster", "topic", "partition", "broker", "event", "occurred_not_after", "collected_at"}
)

_ARROW: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "int[]": pa.list_(pa.int32()),
    "string[]": pa.list_(pa.string()),
}


def arrow_type(plain: str | tuple[Column, ...] | list[tuple[Column, ...]]) -> pa.DataType:
    """Spell a column's type in Arrow."""
    if isinstance(plain, str):
        return _ARROW[plain]
    if isinstance(plain, list):
        return pa.list_(arrow_type(plain[0]))
    return pa.struct([pa.field(column.name, arrow_type(column.type)) for column in plain])


def arrow_schema(table: Table) -> pa.Schema:
    """Spell a table in Arrow, in the order of its definition."""
    return pa.schema([pa.field(column.name, arrow_type(column.type), column.nullable) for column in table.columns])


def create_or_check(directory: Path, table: Table) -> DeltaTable:
    """Open a table below ``directory``, creating it when it does not exist.

    Raises:
        ConfigurationError: its folder cannot be made.
        TableRefused: another program's table, or one that a newer isrwatch wrote.
    """
    path = directory / table.name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"cannot make the table {path}: {error.strerror}; point tables.directory (--tables) at a folder that can "
            "be written"
        ) from None
    if not DeltaTable.is_deltatable(str(path)):
        _create(path, table)
    opened = DeltaTable(str(path))
    _check(opened, table)
    return opened


def _create(path: Path, table: Table) -> None:
    """Make the first version; whoever comes second to it finds the table there, and changes nothing of it."""
    with suppress(CommitFailedError), writing(str(path)):
        DeltaTable.create(
            str(path),
            schema=arrow_schema(table),
            partition_by=list(table.partitioned_by),
            name=table.name,
            description=table.comment,
            mode="ignore",
            configuration=_configuration(table),
            raise_if_key_not_exists=False,
            commit_properties=CommitProperties(max_commit_retries=0),
        )


def _configuration(table: Table) -> dict[str, str | None]:
    """Set the table's properties. Its log and its old files are expired by the job, which knows who needs them.

    Statistics are kept of the columns that people filter by: of all hundred and more, each commit would carry them on
    for every file that there is.
    """
    return {
        "delta.checkpointInterval": "50" if table.append_only else "5",
        APPEND_ONLY: "true" if table.append_only else "false",
        "delta.enableExpiredLogCleanup": "false",
        "delta.logRetentionDuration": "interval 30 days",
        "delta.deletedFileRetentionDuration": "interval 10 minutes",
        "delta.dataSkippingStatsColumns": ",".join(
            column.name
            for column in table.columns
            if column.name in _FILTERED_BY and column.name not in table.partitioned_by
        ),
        LAYOUT_PROPERTY: str(LAYOUT_VERSION),
    }


def _check(opened: DeltaTable, table: Table) -> None:
    found = opened.metadata().configuration.get(LAYOUT_PROPERTY)
    if found is None:
        raise TableRefused(f"{opened.table_uri} is not a table of isrwatch; point tables.directory at another folder")
    if int(found) > LAYOUT_VERSION:
        raise TableRefused(
            f"{opened.table_uri} was written by a newer isrwatch (layout {found}, this program knows "
            f"{LAYOUT_VERSION}); upgrade isrwatch"
        )
    expected = Schema.from_arrow(arrow_schema(table))
    if opened.schema().to_json() != expected.to_json():
        raise TableRefused(
            f"the columns of {opened.table_uri} are not those of isrwatch's {table.name}; "
            "move the folder away or point tables.directory at another one"
        )
