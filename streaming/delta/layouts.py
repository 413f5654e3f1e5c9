"""Opens tables to write them: creates those that are missing, and adds the columns that one lacks.

Only a column that may be null can be added, to a table or at the end of a struct; the rows from before have null there.
It does not raise the layout: readers that do not know the column go on, and those that know it wait for the job, which
adds it at its start. Every other change of the columns raises ``Table.layout``: whoever does not know it refuses the
table.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from streaming.delta.definitions import ColumnsCompared, arrow_schema, check_layout, layout_of, properties_of
from streaming.delta.storage import make_folder, open_table
from streaming.delta.table_lock import writing
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from pathlib import Path

    from streaming.contracts.columns import Table


def create_or_upgrade(directory: Path, table: Table) -> DeltaTable:
    """Open a table below ``directory`` to write it: created if it does not exist, with the columns that it lacks.

    Raises:
        ConfigurationError: its folder cannot be created.
        TableRefused: another program's table, or one that a newer isrwatch wrote.
        TableUnreadable: its log is damaged.
    """
    path = directory / table.name
    make_folder(path)
    opened = open_table(path)
    if opened is None:
        _create(path, table)
        opened = DeltaTable(str(path))
    if layout_of(opened) == table.layout:
        _add_columns(opened, table)
    check_layout(opened, table)
    if unknown := ColumnsCompared.of(opened, table).unknown:
        raise TableRefused(
            f"{opened.table_uri} was written by a newer isrwatch (this program does not know {', '.join(unknown)}); "
            "upgrade isrwatch"
        )
    return opened


def _create(path: Path, table: Table) -> None:
    """Commit the first version; if another writer commits it at the same time, that table is used as it is."""
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
        )


def _add_columns(opened: DeltaTable, table: Table) -> None:
    """Add the columns that a table lacks, and the fields that its structs lack."""
    columns = ColumnsCompared.of(opened, table)
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
