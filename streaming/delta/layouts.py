"""Creates tables, and upgrades tables of older layouts: one numbered step from each layout to the next.

The job upgrades a table when it opens it, before it reads it. A step that was interrupted is repeated from its
beginning; readers refuse the table until the step is complete. A table of a newer layout is refused.

A new column that may be null needs no step of its own: raise ``Table.layout``, and ``_with_new_columns`` adds it. Any
other change gets a function here, listed in ``_STEPS``, with a test on tables of the layout before.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from streaming.contracts.tables import PARTITION_CHANGES, QUARANTINE, REPLICATION_EVENTS
from streaming.delta.definitions import (
    LAYOUT_PROPERTY,
    STATISTICS_PROPERTY,
    arrow_schema,
    check_layout,
    layout_of,
    properties_of,
)
from streaming.delta.layout_2 import add_versions, events_with_versions, refused_with_counts
from streaming.delta.storage import make_folder, open_table
from streaming.delta.table_lock import writing
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from streaming.contracts.columns import Table

# (table, layout that the step leads to)
_STEPS: Final[Mapping[tuple[str, int], Callable[[Path, DeltaTable], None]]] = {
    (PARTITION_CHANGES.name, 2): add_versions,
    (REPLICATION_EVENTS.name, 2): events_with_versions,
    (QUARANTINE.name, 2): refused_with_counts,
}


def create_or_upgrade(directory: Path, table: Table) -> DeltaTable:
    """Open a table below ``directory`` to write it: created if it does not exist, upgraded if it is older.

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
    _upgrade(directory, opened, table)
    check_layout(opened, table)
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


def _upgrade(directory: Path, opened: DeltaTable, table: Table) -> None:
    """Take a table from its layout to the newest, step by step."""
    layout = layout_of(opened)
    while layout is not None and layout < table.layout:
        layout += 1
        step = _STEPS.get((table.name, layout))
        try:
            with writing(opened.table_uri):
                if step is None:
                    _with_new_columns(opened, table)
                else:
                    step(directory, opened)
                # The last commit of the step: an interruption before it repeats the step, which skips what is done.
                opened.alter.set_table_properties(
                    {LAYOUT_PROPERTY: str(layout), STATISTICS_PROPERTY: properties_of(table)[STATISTICS_PROPERTY]},
                    raise_if_not_exists=False,  # of delta-rs: whether it recognises the property
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
        except CommitFailedError as error:
            raise TableRefused(
                f"another job writes {opened.table_uri} while it is upgraded; stop it, then start this one again"
            ) from error
        except (DeltaError, pa.ArrowException) as error:
            raise TableRefused(
                f"{opened.table_uri} cannot be upgraded: {str(error).strip().splitlines()[0]}; bring back the whole "
                "folder of the tables from a copy"
            ) from error


def _with_new_columns(opened: DeltaTable, table: Table) -> None:
    """Add the columns that a table lacks, and the fields that its structs lack; older rows have null there."""
    present = {field.name: field.type for field in opened.schema().fields}
    new = [field for field in Schema.from_arrow(arrow_schema(table)).fields if present.get(field.name) != field.type]
    if new:
        opened.alter.add_columns(new, commit_properties=CommitProperties(max_commit_retries=0))
